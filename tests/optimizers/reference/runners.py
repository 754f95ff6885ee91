"""How optimizers of the reference packages are made and stepped: each yields the parameter after each step.

All compute in float64. Names are those in the table of cases.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
import torch

from edgeopt.compat.ingredients import draw
from edgeopt.optimizers import Normal

Array = np.ndarray[Any, Any]
Make = Callable[..., Any]
Settings = Mapping[str, Any]
Steps = Iterator[Array]

LOW_RANK = ("rank", "scale", "scale_type")


def named(path: str) -> Any:
    """What a dotted path names."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def parameter(start: Array) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor(start))


def values(param: torch.Tensor) -> Array:
    return param.detach().numpy().copy()


def stepped(optimizer: Any, param: torch.nn.Parameter, grads: Array) -> Steps:
    for grad in grads:
        param.grad = torch.tensor(grad)
        optimizer.step()
        yield values(param)


def plain(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    param = parameter(start)
    yield from stepped(make([param], **settings), param, grads)


def with_name(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    """Adam-mini knows by the name that a matrix has a block for each row."""
    param = parameter(start)
    yield from stepped(make([("mlp" if start.ndim > 1 else "scale", param)], **settings), param, grads)


def optax(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    param = jax.numpy.asarray(start)
    transformation = make(**settings)
    state = transformation.init(param)
    for grad in grads:
        update, state = transformation.update(jax.numpy.asarray(grad), state, param)
        param = param + update
        yield np.asarray(param)


def optax_with_loss(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    """Given the losses that the tests give where they have none of their own."""
    param = jax.numpy.asarray(start)
    transformation = make(**settings)
    state = transformation.init(param)
    for done, grad in enumerate(grads):
        loss = jax.numpy.asarray(2.0 + np.cos(done))
        update, state = transformation.update(jax.numpy.asarray(grad), state, param, value=loss)
        param = param + update
        yield np.asarray(param)


def mechanic(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    """Adam inside."""
    others = {key: value for key, value in settings.items() if key != "learning_rate"}
    inner = named("optax.adam")(settings["learning_rate"])
    yield from optax(make, {"base_optimizer": inner, **others}, start, grads)


def unless_zero(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    """No gradient where it is zero as a whole."""
    param = parameter(start)
    optimizer = make([param], **settings)
    for grad in grads:
        param.grad = torch.tensor(grad) if grad.any() else None
        optimizer.step()
        yield values(param)


def sparse(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    """Gradients that hold the rows which are not zero."""
    param = parameter(start)
    optimizer = make([param], **settings)
    for grad in grads:
        (rows,) = np.nonzero(grad.reshape(len(grad), -1).any(axis=1))
        param.grad = torch.sparse_coo_tensor(torch.tensor(rows[None]), torch.tensor(grad[rows]), start.shape)
        optimizer.step()
        yield values(param)


def hessian(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    """The gradient as an estimate of the Hessian's diagonal."""
    param = parameter(start)
    optimizer = make([param], **settings)
    for done, grad in enumerate(grads):
        param.grad = torch.tensor(grad)
        due = done % settings["update_period"] == 0
        optimizer.step(hessian=[torch.tensor(grad)] if due else None)
        yield values(param)


def gauss_newton(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    """The size of the gradient as the diagonal of the Gauss-Newton matrix, in a batch of one, at every third step."""
    param = parameter(start)
    optimizer = make([param], **settings)
    for done, grad in enumerate(grads):
        if done % 3 == 0:
            param.grad = torch.tensor(np.sqrt(np.abs(grad)))
            optimizer.update_hessian()
        param.grad = torch.tensor(grad)
        optimizer.step(bs=1)
        yield values(param)


def schedule_free(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    param = parameter(start)
    optimizer = make([param], **settings)
    optimizer.train()
    yield from stepped(optimizer, param, grads)


def schedule_free_evaluated(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    param = parameter(start)
    optimizer = make([param], **settings)
    optimizer.train()
    for _ in stepped(optimizer, param, grads):
        optimizer.eval()
        yield values(param)
        optimizer.train()


def averaged(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    """SGD, and the average of its parameters."""
    model = torch.nn.ParameterList([parameter(start)])
    average = torch.optim.swa_utils.get_ema_multi_avg_fn(settings["decay"]) if "decay" in settings else None
    mean = make(model, multi_avg_fn=average)
    for _ in stepped(torch.optim.SGD(model.parameters(), settings["lr"]), model[0], grads):
        mean.update_parameters(model)
        yield values(mean.module[0])


def lookahead(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    param = parameter(start)
    inner = torch.optim.SGD([param], settings["lr"], settings["momentum"])
    yield from stepped(make(inner, k=settings["k"], alpha=settings["alpha"]), param, grads)


def without_bfloat16(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    """The iteration of Muon in the dtype of the gradient."""
    with patch.object(torch, "bfloat16", torch.float64), patch.object(torch.Tensor, "bfloat16", torch.Tensor.double):
        yield from plain(make, settings, start, grads)


def muon_without_bfloat16(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    """The same for the variants of pytorch_optimizer, whose groups say that Muon is meant."""
    iteration = named("pytorch_optimizer.optimizer.utils.matrix.zero_power_via_newton_schulz_5")
    defaults = tuple(torch.float64 if value is torch.bfloat16 else value for value in iteration.__defaults__)
    with patch.object(iteration, "__defaults__", defaults):
        param = parameter(start)
        yield from stepped(make([{"params": [param], "use_muon": True}], **settings), param, grads)


def low_rank(make: Make, settings: Settings, start: Array, grads: Array, **keys: Any) -> Steps:
    param = parameter(start)
    group: dict[str, Any] = {"params": [param]}
    if start.ndim > 1:
        group |= {"update_proj_gap": 200, "proj_type": "std", **keys}
        group |= {key: settings[key] for key in LOW_RANK if key in settings}
    others = {key: value for key, value in settings.items() if key not in LOW_RANK}
    yield from stepped(make([group], **others), param, grads)


def galore(make: Make, settings: Settings, start: Array, grads: Array, **keys: Any) -> Steps:
    """The singular vectors in float64, too."""
    with patch.object(torch.Tensor, "float", torch.Tensor.double):
        yield from low_rank(make, settings, start, grads, **keys)


def fira(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    """As GaLore, whose scale is called alpha."""
    yield from galore(make, {"no_deprecation_warning": True, **settings}, start, grads, alpha=1.0)


def apollo(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    """The random projector is ours."""

    def randn(shape: tuple[int, int], **_: Any) -> torch.Tensor:
        ours = draw(Normal((min(start.shape), settings["rank"])), start.shape, 1, 0, 0)
        return torch.tensor(ours if shape == ours.shape else ours.T)

    with (
        patch("apollo_torch.random_projector.stable_randn", randn),
        patch.object(torch.Tensor, "float", torch.Tensor.double),
    ):
        yield from low_rank(make, {"scale_type": "channel", **settings}, start, grads, proj="random")


def kron(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    """The probes are ours, in float64; they do not reach the momentum that is preconditioned."""
    change = named("kron_torch.kron._update_precond")
    probes = (draw(Normal(), start.shape, 1, done, 0) for done in range(len(grads)))
    due = settings.get("preconditioner_update_probability", 1.0)

    def randn_like(x: torch.Tensor) -> torch.Tensor:
        skipped = [next(probes) for _ in range(round(1 / due))]
        return torch.tensor(skipped[-1].reshape(x.shape))

    def changed(factors: Any, expressions: Any, momentum: torch.Tensor, *numbers: torch.Tensor) -> None:
        change(factors, expressions, momentum.clone(), *numbers)

    with (
        torch.compiler.set_stance("force_eager"),
        patch.object(torch, "randn_like", randn_like),
        patch.object(torch.Tensor, "float", torch.Tensor.double),
        patch("kron_torch.kron._update_precond", changed),
    ):
        yield from plain(make, {**settings, "precond_dtype": torch.float64}, start, grads)


def beside_identity(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    """The first factor of an adapter whose second one stays the identity."""
    wide = start.shape[0] < start.shape[1]
    first = parameter(start if wide else start.T.copy())
    identity = torch.eye(min(start.shape), dtype=torch.float64)
    second = torch.nn.Parameter(identity.clone())
    optimizer = make([first, second], **settings)
    for grad in grads:
        first.grad, second.grad = torch.tensor(grad if wide else grad.T.copy()), torch.zeros_like(second)
        optimizer.step()
        second.data.copy_(identity)
        yield values(first if wide else first.T)


def adapter(make: Make, settings: Settings, start: Array, grads: Array) -> Steps:
    """Both factors of an adapter: the first six columns are A, the others B transposed."""
    first, second = parameter(start[:, :6].copy()), parameter(start[:, 6:].T.copy())
    optimizer = make([first, second], **settings)
    for grad in grads:
        first.grad, second.grad = torch.tensor(grad[:, :6].copy()), torch.tensor(grad[:, 6:].T.copy())
        optimizer.step()
        yield np.concatenate([values(first), values(second).T], axis=1)
