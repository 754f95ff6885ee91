"""Operators whose translation by torch's exporter drops arguments, narrows numbers or is missing, against PyTorch.

Each row of a table is a function of (N, 6) hidden units, of labels and of soft labels, whose result has N rows. A group
of them is one module with a weight for each row, exported once: so a wrong gradient has its row's name too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.losses import MSE
from edgeopt.optimizers import SGD

F = nn.functional
Row = Callable[..., torch.Tensor]


def image(h: torch.Tensor) -> torch.Tensor:
    """(N, 2, 6, 6)."""
    return torch.stack([h[:, :, None] * h[:, None, :], h[:, :, None] - 2 * h[:, None, :]], 1)


def volume(h: torch.Tensor) -> torch.Tensor:
    """(N, 1, 6, 6, 6)."""
    return (h[:, :, None, None] + h[:, None, :, None] * h[:, None, None, :])[:, None]


def tied(h: torch.Tensor) -> torch.Tensor:
    """Rows in which elements are equal, with another gradient for each."""
    return torch.cat([h, h.detach() + (2 * h - 2 * h.detach()), -h], 1)


def places(labels: torch.Tensor) -> torch.Tensor:
    return (labels % 3)[:, None].expand(-1, 6)


def scattered(reduce: str, include_self: bool) -> Row:
    def row(h: torch.Tensor, labels: torch.Tensor, soft: torch.Tensor) -> torch.Tensor:
        return (h * 2).scatter_reduce(0, places(labels), torch.sin(h), reduce, include_self=include_self)

    return row


def in_place_mean(h: torch.Tensor, labels: torch.Tensor, soft: torch.Tensor) -> torch.Tensor:
    start = torch.zeros_like(h)
    start.scatter_reduce_(0, places(labels), h, "mean", include_self=False)
    return start


def weights(h: torch.Tensor) -> torch.Tensor:
    return torch.linspace(0.3, 1.7, 6, dtype=h.dtype)


def bags(mode: str, **settings: Any) -> Row:
    def row(h: torch.Tensor, labels: torch.Tensor, soft: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(torch.stack([labels, labels + 1, labels * 0], 1), h[:4], mode=mode, **settings)

    return row


def bags_by_offsets(h: torch.Tensor, labels: torch.Tensor, soft: torch.Tensor) -> torch.Tensor:
    offsets = torch.arange(0, labels.shape[0], dtype=torch.int64) // 2
    return F.embedding_bag(labels, h[:4], offsets, mode="sum", per_sample_weights=soft[:, 0])


GROUPS: dict[str, dict[str, Row]] = {
    "numbers": {
        "scalars": lambda h, *_: h * 0.3 + 0.1 - (0.7 - h) / 0.9,
        "alpha": lambda h, *_: torch.add(h, h * h, alpha=0.3) + torch.sub(h, h * h, alpha=0.7),
        "clamp": lambda h, *_: h.clamp(-0.3, 0.7) + h.clamp_min(0.1) + h.clamp_max(0.1),
        "pow": lambda h, *_: (h.abs() + 0.1) ** 0.3 + 1.1**h,
        "leaky_relu": lambda h, *_: F.leaky_relu(h, 0.03),
        "elu": lambda h, *_: F.elu(h, 0.3) + F.celu(h, 0.7) + F.selu(h),
        "threshold": lambda h, *_: F.threshold(h, 0.1, 0.7) + F.hardtanh(h, -0.1, 0.7),
        "shrink": lambda h, *_: F.softshrink(h, 0.3) + F.hardshrink(h, 0.3),
        "softplus": lambda h, *_: F.softplus(h, 0.7, 1.1),
        "gelu": lambda h, *_: F.gelu(h, approximate="tanh") + F.gelu(h),
        "hard": lambda h, *_: F.hardsigmoid(h) + F.hardswish(h) + F.relu6(h) + F.silu(h) + F.mish(h),
        "logarithms": lambda h, *_: torch.log2(h.abs() + 1) + torch.log10(h.abs() + 1) + torch.log1p(h.abs()),
        "progressions": lambda h, *_: (
            h * torch.arange(0.1, 0.7, 0.1, dtype=h.dtype) + torch.linspace(0.1, 0.7, 6).to(h.dtype)
        ),
        "fmax": lambda h, *_: torch.fmax(h, h * h) + torch.fmin(h, h * h),
        "lerp": lambda h, *_: torch.lerp(h, h * h, 0.3),
        "addmm": lambda h, *_: torch.addmm(h, h, h.T @ h, beta=0.3, alpha=0.7),
        "baddbmm": lambda h, *_: torch.baddbmm(image(h)[:, 0], image(h)[:, 0], image(h)[:, 1], beta=0.3, alpha=0.7),
        "addcmul": lambda h, *_: torch.addcmul(h, h, h, value=0.1) + torch.addcdiv(h, h, h.abs() + 2, value=0.1),
        "filled": lambda h, *_: h * torch.full_like(h, 0.3) + h.new_full((6,), 0.1) + torch.full((6,), 0.7).to(h.dtype),
        "masked": lambda h, *_: h.masked_fill(h > 0.2, 0.1) + torch.where(h > 0, h, 0.3),
        "pad": lambda h, *_: F.pad(h, (1, 1), value=0.3),
        "huber": lambda h, *_: (
            F.huber_loss(h, 2 * h, delta=0.3, reduction="none") + F.smooth_l1_loss(h, 2 * h, beta=0.3)
        ),
        "normalize": lambda h, *_: F.normalize(h * 1e-3, eps=0.0021),
        "cosine": lambda h, *_: F.cosine_similarity(h * 1e-3, h[:, [1, 2, 0, 3, 5, 4]], eps=0.003)[:, None],
        "layer_norm": lambda h, *_: (
            F.layer_norm(h * 1e-3, (6,), weights(h), eps=1e-5) + F.rms_norm(h * 1e-3, (6,), eps=1e-5)
        ),
        "group_norm": lambda h, *_: F.group_norm(image(h) * 1e-3, 2, eps=1e-5) + F.instance_norm(image(h) * 1e-3),
        "batch_norm": lambda h, *_: F.batch_norm(h * 1e-3, None, None, training=True),
    },
    "losses": {
        "smoothing": lambda h, y, p: h * F.cross_entropy(h, y, label_smoothing=0.2),
        "weighted": lambda h, y, p: h * F.cross_entropy(h, y, weights(h), ignore_index=1, label_smoothing=0.2),
        "each": lambda h, y, p: h * F.cross_entropy(h, y, weights(h), ignore_index=2, reduction="none")[:, None],
        "sum": lambda h, y, p: h * F.cross_entropy(h, y, reduction="sum", label_smoothing=0.1),
        "soft": lambda h, y, p: h * F.cross_entropy(h, p),
        "soft, weighted": lambda h, y, p: h * F.cross_entropy(h, p, weights(h), label_smoothing=0.2),
        "soft, each": lambda h, y, p: h * F.cross_entropy(h, p, weights(h), reduction="none")[:, None],
        "images": lambda h, y, p: (
            h * F.cross_entropy(image(h), y[:, None, None].expand(-1, 6, 6) % 2, label_smoothing=0.1)
        ),
        "nll": lambda h, y, p: h * F.nll_loss(F.log_softmax(h, 1), y, weights(h), ignore_index=1),
        "nll, each": lambda h, y, p: h * F.nll_loss(F.log_softmax(h, 1), y, reduction="none")[:, None],
        "one": lambda h, y, p: h * F.cross_entropy(h[0], y[0], label_smoothing=0.1),
        "distances": lambda h, y, p: torch.cat(
            [torch.cdist(h, h[:2] + 1, q) for q in (0.0, 1.0, 1.5, 2.0, math.inf)], 1
        ),
        "nearest": lambda h, y, p: torch.cdist(h, h[:3] * 2, compute_mode="donot_use_mm_for_euclid_dist").min(1)[0][
            :, None
        ],
    },
    "pooling": {
        "divisor": lambda h, *_: F.avg_pool2d(image(h), 2, divisor_override=3),
        "divisor, ceil": lambda h, *_: F.avg_pool2d(image(h), 3, 2, 1, ceil_mode=True, divisor_override=4),
        "divisor, last window dropped": lambda h, *_: F.avg_pool2d(
            image(h), 2, 3, 1, ceil_mode=True, divisor_override=7
        ),
        "divisor, volume": lambda h, *_: F.avg_pool3d(volume(h), (2, 3, 2), (2, 2, 1), (1, 1, 0), divisor_override=5),
        "ceil": lambda h, *_: (
            F.avg_pool2d(image(h), 3, 2, 1, ceil_mode=True) + F.max_pool2d(image(h), 3, 2, 1, ceil_mode=True)
        ),
        "without padding": lambda h, *_: F.avg_pool1d(image(h)[:, 0], 3, 2, 1, True, False),
        "adaptive": lambda h, *_: F.adaptive_max_pool1d(h[:, None], 4) + F.adaptive_avg_pool1d(h[:, None], 4),
        "adaptive, images": lambda h, *_: (
            F.adaptive_max_pool2d(image(h), (4, 3)) * F.adaptive_avg_pool2d(image(h), (4, 3))
        ),
        "adaptive, volume": lambda h, *_: (
            F.adaptive_max_pool3d(volume(h), (1, 2, 4)) * F.adaptive_avg_pool3d(volume(h), (1, 2, 4))
        ),
        "ties": lambda h, *_: F.adaptive_max_pool1d(tied(h)[:, None], 1)[:, 0],
        "bags, sum": bags("sum"),
        "bags, mean": bags("mean", padding_idx=1),
        "bags, max": bags("max", padding_idx=0),
        "bags, frequency": bags("mean", scale_grad_by_freq=True),
        "bags by offsets": bags_by_offsets,
        "embedding, frequency": lambda h, y, p: F.embedding(y, h[:4], padding_idx=2, scale_grad_by_freq=True),
    },
    "selections": {
        "max": lambda h, *_: tied(h).max(1, keepdim=True).values + tied(h).amax(1, keepdim=True),
        "min": lambda h, *_: tied(h).min(1).values[:, None] * 2,
        "over all": lambda h, *_: h * tied(h).max() + tied(h).min(),
        "topk": lambda h, *_: h.topk(2, 1).values,
        "median": lambda h, *_: tied(h).median(1, keepdim=True).values,
        "median over all": lambda h, *_: h * tied(h).median(),
        "kthvalue": lambda h, *_: h.kthvalue(2, 1).values[:, None],
        "sort": lambda h, *_: torch.sort(h, dim=1, stable=True).values * weights(h),
        "cumulative": lambda h, *_: (
            h.cumprod(1) + tied(h).cummax(1).values[:, 5:11] + tied(h).cummin(1).values[:, 9:15]
        ),
        "zero in a product": lambda h, *_: (h * torch.tensor([1.0, 0, 2, 0, 3, 1]).to(h.dtype)).cumprod(1),
        "mean": scattered("mean", True),
        "mean of updates": scattered("mean", False),
        "mean in place": in_place_mean,
        "sum": scattered("sum", False),
        "prod": scattered("prod", True),
        "prod of updates": scattered("prod", False),
        "amax": scattered("amax", True),
        "amax of updates": scattered("amax", False),
        "amin of updates": scattered("amin", False),
        "index_reduce": lambda h, y, p: h.index_reduce(0, y % 3, torch.sin(h), "mean", include_self=False),
        "fake_quantize": lambda h, *_: torch.fake_quantize_per_tensor_affine(h, 0.05, 3, -20, 20),
        "fake_quantize, channels": lambda h, *_: torch.fake_quantize_per_channel_affine(
            h, torch.linspace(0.01, 0.07, 6), torch.arange(6, dtype=torch.int32), 1, -20, 20
        ),
        "rrelu": lambda h, *_: F.rrelu(h),
    },
    "axes": {
        "squeeze of other lengths": lambda h, *_: h.reshape(-1, 6, 1, 1).squeeze((1, 2)).squeeze(1),
        "ellipsis": lambda h, *_: torch.einsum("...i,ij->...j", h.reshape(-1, 2, 3), weights(h)[:3, None] + h[:3, :3]),
        "ellipses of different length": lambda h, *_: torch.einsum("b...i,...i->b...", h.reshape(-1, 2, 3), h[0, :3]),
        "scalars": lambda h, *_: h * h.mean().sum(0) + h.sum().amax(0) * h.mean().prod(0),
        "order of scalars": lambda h, *_: (
            h * h.mean().topk(1, 0).values + h.mean().sort(0).values + h.mean().max(0).values
        ),
        "ranks of scalars": lambda h, *_: (
            h * h.mean().kthvalue(1, 0).values + h.mean().median(0).values + h.mean().cummax(0).values
        ),
        "mean scattered into a scalar": lambda h, *_: (
            h * h.mean().scatter_reduce(0, torch.tensor(0), h.sum(), "mean", include_self=True)
        ),
        "added by scatter": lambda h, y, p: h * h.detach().scatter(1, (y * 0)[:, None], p[:, :1], reduce="add"),
    },
    "functions": {
        "soft margin": lambda h, y, p: F.soft_margin_loss(20 * h, 2.0 * (y[:, None] % 2) - 1, reduction="none") / 10,
        "copysign": lambda h, *_: torch.copysign(h, h.roll(1, 1)) + torch.copysign(h, -0.0),
        "hypot": lambda h, *_: torch.hypot(h, h.roll(1, 1)),
        "hardsigmoid": lambda h, *_: F.hardsigmoid(h.detach() * 4) * h,
        "log_ndtr": lambda h, *_: torch.special.log_ndtr(20 * h) / 100,
        "divided by integers": lambda h, y, p: torch.divide(h, y[:, None] + 1) + torch.multiply(h, y[:, None]),
        "masked variance": lambda h, *_: torch.masked.var(h, 1, keepdim=True, mask=h > -9.0),
    },
}


class Rows(nn.Module):
    def __init__(self, rows: Mapping[str, Row]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rows = list(rows.values())
        self.weights = nn.ParameterList(torch.randn(6, 6) for _ in rows)

    def forward(self, x: torch.Tensor, labels: torch.Tensor, soft: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = [
            row(x @ weight, labels, soft).flatten(1) for row, weight in zip(self.rows, self.weights, strict=True)
        ]
        return (torch.cat(results, 1), *results)


def batch(size: int, seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (size,), generator=generator)
    return x, labels, torch.softmax(torch.randn(size, 6, generator=generator, dtype=torch.float64), 1)


def arrays(tensors: tuple[torch.Tensor, ...]) -> tuple[np.ndarray, ...]:
    return tuple(tensor.numpy() for tensor in tensors)


def close(mine: Any, theirs: torch.Tensor, name: str, tolerance: float = 1e-12) -> None:
    if problem := difference(mine, theirs, name, tolerance):
        raise AssertionError(problem)


def difference(mine: Any, theirs: torch.Tensor, name: str, tolerance: float) -> str:
    """What differs, or nothing."""
    want = theirs.detach().numpy()
    try:
        np.testing.assert_allclose(mine, want, rtol=tolerance, atol=tolerance * np.abs(want).max(), err_msg=name)
    except AssertionError as error:
        return str(error)
    return ""


def all_close(rows: Any, tolerance: float) -> None:
    """Every row that differs is named, not the first one only."""
    problems = [difference(mine, theirs, name, tolerance) for name, mine, theirs in rows]
    assert not any(problems), "\n".join(filter(None, problems))


@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
@pytest.mark.parametrize("group", GROUPS)
def test_predictions_and_three_steps_equal_pytorch(group: str) -> None:
    rows = GROUPS[group]
    module = Rows(rows).double()
    session = edgeopt.export(
        module, batch(5, 0), loss=MSE(), optimizer=SGD(lr=0.01), output="output", verbose=False
    ).session()
    for size in (5, 7):
        examples = batch(size, 1)
        module.eval()
        predicted = session.predict(arrays(examples))
        assert isinstance(predicted, dict)
        all_close(zip(rows, list(predicted.values())[1:], module(*examples)[1:], strict=True), 1e-12)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    module.train()
    for step in range(3):
        examples = batch((5, 7, 5)[step], step + 2)
        output = module(*examples)[0]
        target = torch.zeros_like(output)
        loss = F.mse_loss(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        close(session.step((*arrays(examples), target.numpy()))["loss"], loss, "loss")
        all_close(zip(rows, session.parameters().values(), module.parameters(), strict=True), 1e-11)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_move_and_are_used(momentum: float | None) -> None:
    module = nn.Sequential(
        nn.Linear(6, 6),
        nn.Unflatten(1, (2, 3)),
        nn.InstanceNorm1d(2, track_running_stats=True, momentum=0.3),
        nn.Flatten(),
        nn.BatchNorm1d(6, momentum=momentum),
    ).double()
    session = edgeopt.export(module, batch(5, 0)[0], loss=MSE(), optimizer=SGD(lr=0.1), verbose=False).session()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for step in range(3):
        x, target = batch((5, 7, 5)[step], step)[0], batch((5, 7, 5)[step], step + 9)[0]
        loss = F.mse_loss(module(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        close(session.step((x.numpy(), target.numpy()))["loss"], loss, "loss", 1e-11)
    for name, theirs in module.state_dict().items():
        close(session.state()[name], theirs, name, 1e-10)
    module.eval()
    close(session.predict(batch(7, 3)[0].numpy()), module(batch(7, 3)[0]), "prediction", 1e-10)


def test_epsilon_is_not_narrowed_where_variances_are_tiny() -> None:
    module = nn.Sequential(nn.BatchNorm1d(6, eps=1e-5), nn.LayerNorm(6, eps=1e-5)).double()
    module.eval()
    session = edgeopt.export(module, batch(5, 0)[0], loss=MSE(), optimizer=SGD(lr=0.1), verbose=False).session()
    x = batch(7, 1)[0] * 1e-5
    close(session.predict(x.numpy()), module(x), "evaluation")
    module.train()
    target = torch.zeros(7, 6, dtype=torch.float64)
    close(session.step((x.numpy(), target.numpy()))["loss"], F.mse_loss(module(x), target), "loss")


def test_rrelu_draws_a_slope_for_each_element_in_training_only() -> None:
    module = nn.Sequential(nn.Linear(6, 6), nn.RReLU(0.1, 0.3)).double()
    for parameter, value in zip(module.parameters(), (0.0, -1.0), strict=True):
        nn.init.constant_(parameter, value)
    x = batch(50, 0)[0]
    session = edgeopt.export(module, x, loss=MSE(), optimizer=SGD(lr=0.0), verbose=False).session()
    close(session.predict(x.numpy()), torch.full((50, 6), -0.2, dtype=torch.float64), "evaluation")
    losses = [session.step((x.numpy(), np.zeros((50, 6))))["loss"] for _ in range(2)]
    # The mean square of uniform numbers between 0.1 and 0.3 is 0.13 / 3, its deviation for 300 of them 0.0014.
    assert losses[0] != losses[1]
    np.testing.assert_allclose(losses, 0.13 / 3, atol=0.007)


def test_max_pool1d_of_symbolic_length() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(6, 3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.conv(x)
            return F.max_pool1d(h, 2, padding=1).mean(2) + F.avg_pool1d(h, 3, 2, ceil_mode=True).mean(2)

    module = Net().double()
    x = torch.randn(3, 6, 9, dtype=torch.float64)
    session = edgeopt.export(
        module, x, loss=MSE(), optimizer=SGD(lr=0.1), dynamic_shapes={"x": {2: "time"}}, verbose=False
    ).session()
    for length in (9, 12):
        x = torch.randn(4, 6, length, dtype=torch.float64)
        close(session.predict(x.numpy()), module(x), str(length))


def test_powers_of_half_precision() -> None:
    class Powers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            base = self.linear(x).abs() + 0.5
            return base**2.5 + base.pow(x)

    torch.manual_seed(0)
    module, x = Powers().half(), torch.rand(4, 3).half()
    session = edgeopt.export(module, x, loss=MSE(), optimizer=SGD(lr=0.1), verbose=False).session()
    target = torch.zeros(4, 3).half()
    loss = F.mse_loss(module(x), target)
    close(session.predict(x.numpy()), module(x), "prediction", 4e-3)
    close(session.step((x.numpy(), target.numpy()))["loss"], loss, "loss", 1e-2)
