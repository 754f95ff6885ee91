"""Modules trained by PyTorch and by their bundle, side by side."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import edgeopt


def _moved(session, reference, context):
    state = session.state()
    for name, tensor in [*reference.named_parameters(), *reference.named_buffers()]:
        expected = tensor.detach().numpy()
        np.testing.assert_allclose(state[name], expected, rtol=1e-9, atol=1e-11, err_msg=f"{name} {context}")


@pytest.fixture(scope="session")
def assert_follows():
    """Train a float64 module both ways with SGD, by steps and by microbatches; all of its state stays equal."""

    def check(module, *inputs, steps=2, microbatches=2, rate=0.05, chosen=None, optimizer=None, **settings):
        module = module.double()
        reference = copy.deepcopy(module).train()
        bundle = edgeopt.export(
            module,
            inputs,
            **{"loss": edgeopt.losses.MSE(), "verbose": False, **settings},
            optimizer=edgeopt.optimizers.SGD(lr=rate) if optimizer is None else optimizer,
        )
        session = bundle.session()
        pick = (lambda found: found) if chosen is None else chosen
        trained = [parameter for parameter in reference.parameters() if parameter.requires_grad]
        sgd = torch.optim.SGD(trained, lr=rate)
        random = np.random.default_rng(0)

        def loss():
            found = pick(reference(*[x.clone() for x in inputs]))
            target = random.standard_normal(tuple(found.shape))
            return torch.nn.functional.mse_loss(found, torch.from_numpy(target)), target

        def batch(target):
            return (*(x.numpy() for x in inputs), target)

        for step in range(steps):
            expected, target = loss()
            sgd.zero_grad()
            expected.backward()
            sgd.step()
            assert session.step(batch(target))["loss"] == pytest.approx(expected.item(), rel=1e-9)
            _moved(session, reference, f"after step {step + 1}")
        if microbatches:
            sgd.zero_grad()
            for _ in range(microbatches):
                expected, target = loss()
                (expected / microbatches).backward()
                session.accumulate(batch(target))
            for name, parameter in reference.named_parameters():
                np.testing.assert_allclose(
                    session.state()[name], parameter.detach().numpy(), rtol=1e-9, atol=1e-11, err_msg=name
                )
            sgd.step()
            session.apply()
            _moved(session, reference, "after apply")
        return bundle

    return check
