"""Averages of parameters against torch's AveragedModel, and against their definitions."""

from __future__ import annotations

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import SGD, Adam, Averaged, AveragedAdam


def torch_average(start, grads, mix, first, every, **settings):
    """Train with SGD, and update torch's averaged model after some of the steps."""
    weight = torch.nn.Parameter(torch.tensor(start))
    model = torch.nn.ParameterList([weight])
    averaged, rule = AveragedModel(model, avg_fn=mix), torch.optim.SGD(model.parameters(), **settings)
    for t, grad in enumerate(grads, 1):
        weight.grad = torch.tensor(grad)
        rule.step()
        if t > first and (t - first) % every == 0:
            averaged.update_parameters(model)
    (average,) = averaged.parameters()
    return weight.detach().numpy(), average.detach().numpy()


@pytest.mark.parametrize(("first", "every"), [(0, 1), (4, 3)])
@pytest.mark.parametrize("mode", ["mean", "ema"])
def test_averages_as_torch_does(mode, first, every, xp, train, draws):
    start, grads = draws(25)
    rule = Averaged(SGD(0.1, momentum=0.9), mode, start=first, every=every, beta=0.9)
    param, state = train(rule, xp, start, lambda _, i: grads[i], 25)
    average = get_ema_avg_fn(0.9) if mode == "ema" else None
    expected, expected_average = torch_average(start, grads, average, first, every, lr=0.1, momentum=0.9)
    np.testing.assert_allclose(param, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(state["averaged_param"], expected_average, rtol=1e-12, atol=1e-12)


def weighted_mean(iterates, beta):
    """The mean of iterates that weigh less the older they are; a running sum divided by the running weight."""
    weights = beta ** np.arange(len(iterates) - 1, -1, -1)
    return np.tensordot(weights / weights.sum(), np.stack(iterates), 1)


@pytest.mark.parametrize("steps", [1, 2, 25])
def test_a_debiased_average_weighs_the_iterates_alone(steps, train, draws):
    start, grads = draws(25)
    iterates = [train(Adam(0.01), numpy_namespace, start, lambda _, i: grads[i], n)[0] for n in range(1, steps + 1)]
    expected = weighted_mean(iterates, 0.8)
    for rule in (Averaged(Adam(0.01), "debiased", beta=0.8), AveragedAdam(0.01, beta_average=0.8)):
        param, state = train(rule, numpy_namespace, start, lambda _, i: grads[i], steps)
        np.testing.assert_array_equal(param, iterates[-1])
        np.testing.assert_allclose(state["averaged_param"], expected, rtol=1e-12, atol=1e-12)


def test_on_onnx_runtime_the_parameter_is_that_of_the_inner_rule(assert_follows):
    def sgd(theta, grads):
        return theta - 0.01 * grads.sum(0)

    assert_follows(Averaged(SGD(0.01), "ema"), sgd)


def test_until_the_start_the_parameter_is_viewed(xp, train, draws):
    start, grads = draws(5)
    rule = Averaged(SGD(0.1), start=4, every=2)
    param, state = train(rule, xp, start, lambda _, i: grads[i], 5)
    view = rule.view(xp, xp.asarray(param), {"averaged_param": xp.asarray(state["averaged_param"])}, {}, None)
    np.testing.assert_allclose(np.asarray(view), param, rtol=1e-14)


def test_the_inner_optimizer_keeps_its_own():
    inner = Adam(0.1, beta1=0.8)
    outer = Averaged(inner, "ema", beta=0.9)
    assert outer.schedule == inner.schedule
    assert list(outer.init(np.zeros(2))) == [*inner.init(np.zeros(2)), "averaged_param"]
    assert outer.hyperparameters() == {**inner.hyperparameters(), "averaged.beta": 0.9}
    assert Averaged(inner).hyperparameters() == inner.hyperparameters()
    assert outer.elementwise
    assert not Averaged(Adam(cautious=True)).elementwise


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Averaged(0.1), "inner"),  # type: ignore[arg-type] # wrong on purpose
        (lambda: Averaged(SGD(), "median"), "mode"),  # type: ignore[arg-type] # wrong on purpose
        (lambda: Averaged(SGD(), start=-1), "start"),
        (lambda: Averaged(SGD(), every=0), "every"),
        (lambda: Averaged(SGD(), beta=1.0), "beta"),
        (lambda: AveragedAdam(beta_average=1.0), "beta_average"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
