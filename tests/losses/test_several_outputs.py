"""Losses that read two outputs or three, beside PyTorch: values, gradients of every output, second derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_compat.numpy
import array_api_compat.torch
import numpy as np
import pytest
import torch

import edgeopt
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses import (
    ArraySpec,
    CosineEmbedding,
    CrossEntropy,
    Distillation,
    GaussianNLL,
    InfoNCE,
    Loss,
    MarginRanking,
    Triplet,
)
from edgeopt.optimizers import SGD
from edgeopt.testing import check_gradients

F: Any = torch.nn.functional
RNG = np.random.default_rng(5)
A, B, C = (RNG.standard_normal((6, 4)) for _ in range(3))
SIGN = np.where(RNG.random(6) < 0.5, -1.0, 1.0)
VARIANCE = RNG.uniform(0.1, 3.0, (6, 4))


def clip(a: Any, b: Any, scale: float) -> Any:
    """The pseudocode of CLIP's figure 3."""
    logits = F.normalize(a) @ F.normalize(b).T * scale
    labels = torch.arange(len(a))
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2


def distilled(student: Any, teacher: Any, t: float) -> Any:
    log, wanted = F.log_softmax(student / t, 1), F.softmax(teacher.detach() / t, 1)
    return F.kl_div(log, wanted, reduction="batchmean") * t * t


Reference = Callable[..., Any]
CASES: list[tuple[Loss, Reference, list[Any], int]] = [
    (CosineEmbedding(0.2), lambda a, b, y: F.cosine_embedding_loss(a, b, y, 0.2), [A, B, SIGN], 2),
    (
        CosineEmbedding(reduction="sum"),
        lambda a, b, y: F.cosine_embedding_loss(a, b, y, reduction="sum"),
        [A, B, SIGN],
        2,
    ),
    (MarginRanking(0.3), lambda a, b, y: F.margin_ranking_loss(a, b, y, 0.3), [A, B, np.sign(C)], 2),
    (Triplet(), F.triplet_margin_loss, [A, B, C], 3),
    (Triplet(0.5, swap=True), lambda *x: F.triplet_margin_loss(*x, margin=0.5, swap=True), [A, B, C], 3),
    (Triplet(p=1.0), lambda *x: F.triplet_margin_loss(*x, p=1.0), [A, B, C], 3),
    (Triplet(p=3.0), lambda *x: F.triplet_margin_loss(*x, p=3.0), [A, B, C], 3),
    (InfoNCE(0.2, eps=0.0), lambda a, b: clip(a, b, 5.0), [A, B], 2),
    (Distillation(3.0), lambda a, b: distilled(a, b, 3.0), [A, 3 * B], 1),
    (GaussianNLL(), lambda m, v, t: F.gaussian_nll_loss(m, t, v), [A, VARIANCE, B], 2),
    (GaussianNLL(full=True), lambda m, v, t: F.gaussian_nll_loss(m, t, v, full=True), [A, VARIANCE[:, :1], B], 2),
    (GaussianNLL(log_variance=True), lambda m, v, t: F.gaussian_nll_loss(m, t, v.exp()), [A, C, B], 2),
    (GaussianNLL(reduction="sum"), lambda m, v, t: F.gaussian_nll_loss(m, t, v, reduction="sum"), [A, VARIANCE, B], 2),
]


IDS = [f"{type(case[0]).__name__}-{place}" for place, case in enumerate(CASES)]


def value(loss: Loss, xp: Any, arrays: Any) -> Any:
    total, weight = loss.terms(xp, *arrays)
    return total / weight


@pytest.mark.parametrize(("loss", "reference", "arrays", "differentiable"), CASES, ids=IDS)
def test_values_and_gradients_are_torchs(loss: Loss, reference: Reference, arrays: Any, differentiable: int) -> None:
    theirs = [torch.tensor(array, requires_grad=place < differentiable) for place, array in enumerate(arrays)]
    expected = reference(*theirs)
    expected.backward()
    np.testing.assert_allclose(value(loss, array_api_compat.numpy, arrays), expected.detach(), rtol=1e-11)
    ours = [torch.tensor(array, requires_grad=place < differentiable) for place, array in enumerate(arrays)]
    value(loss, array_api_compat.torch, ours).backward()
    for one, other in zip(ours[:differentiable], theirs, strict=False):
        np.testing.assert_allclose(one.grad, other.grad, rtol=1e-10, atol=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize(("loss", "reference", "arrays", "differentiable"), CASES, ids=IDS)
def test_graphs_have_the_gradients(loss: Loss, reference: Reference, arrays: Any, differentiable: int) -> None:
    """Against differences in float64, and of the gradients too."""
    from edgeopt import tracing as xp

    constants = [np.asarray(array) for array in arrays[differentiable:]]

    def program(*traced: Any) -> Any:
        return loss.terms(xp, *traced, *constants)[0]

    check_gradients(program, list(arrays[:differentiable]), order=2)


def test_a_variance_below_the_bound_can_grow_again() -> None:
    """As in torch: the bound changes the value and not the slope."""
    mean, variance, target = (torch.tensor([[x]], dtype=torch.float64) for x in (0.0, 0.1, 2.0))
    variance.requires_grad_()
    F.gaussian_nll_loss(mean, target, variance, eps=0.5).backward()

    class Both(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.v = torch.nn.Parameter(torch.tensor([[0.1]], dtype=torch.float64))

        def forward(self, x: Any) -> dict[str, Any]:
            return {"mean": x, "variance": self.v + 0 * x}

    loss = GaussianNLL(eps=0.5, output="mean")
    bundle = edgeopt.export(
        Both(),
        torch.zeros(1, 1, dtype=torch.float64),
        loss=loss,
        optimizer=SGD(1.0),
        verbose=False,
        dynamic_batch=False,
    )
    session = bundle.session()
    session.step({"x": np.zeros((1, 1)), "target": np.full((1, 1), 2.0)})
    moved = 0.1 - session.parameters()["v"]
    np.testing.assert_allclose(moved, variance.grad)  # type: ignore[arg-type]


class Towers(torch.nn.Module):
    """Two embeddings, and a scale that is learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
        self.log_scale = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, a: Any, b: Any) -> dict[str, Any]:
        return {"one": self.left(a), "other": self.right(b), "scale": self.log_scale.exp()}


def test_two_towers_train_as_in_torch_with_a_scale_of_their_own() -> None:
    torch.manual_seed(0)
    module = Towers()
    a, b = (torch.tensor(array, dtype=torch.float32) for array in (A, B))
    bundle = edgeopt.export(
        module, (a[:2], b[:2]), loss=InfoNCE(output="one", scale="scale"), optimizer=SGD(0.5), verbose=False
    )
    session = bundle.session()
    optimizer = torch.optim.SGD(module.parameters(), 0.5)
    for _ in range(5):
        outputs = module(a, b)
        loss = clip(outputs["one"], outputs["other"], outputs["scale"])
        metrics = session.step({"a": a.numpy(), "b": b.numpy()})
        assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(session.parameters()[name], parameter.detach(), rtol=1e-5, atol=1e-6)


def test_a_student_learns_from_a_frozen_teacher() -> None:
    class Pair(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student, self.teacher = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3).requires_grad_(False)

        def forward(self, x: Any) -> dict[str, Any]:
            return {"scores": self.student(x), "wanted": self.teacher(x)}

    torch.manual_seed(0)
    module = Pair()
    loss = Distillation(output="scores", teacher="wanted") + 0.5 * CrossEntropy(output="scores")
    x, labels = torch.tensor(A, dtype=torch.float32), torch.tensor([0, 1, 2, 0, 1, 2])
    session = edgeopt.export(module, x[:2], loss=loss, optimizer=SGD(0.1), verbose=False).session()
    session.step({"x": x.numpy(), "target": labels.numpy()})
    outputs = module(x)
    (distilled(outputs["scores"], outputs["wanted"], 2.0) + 0.5 * F.cross_entropy(outputs["scores"], labels)).backward()
    weight = module.student.weight
    assert weight.grad is not None
    expected = weight.detach() - 0.1 * weight.grad
    np.testing.assert_allclose(session.parameters()["student.weight"], expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("loss", "shapes", "why"),
    [
        (Triplet(), [("n", 4), ("n", 4), ("n", 3)], "compares outputs of one shape"),
        (CosineEmbedding(), [("n",), ("n",)], "compares embeddings"),
        (InfoNCE(scale="s"), [("n", 4), ("n", 4), (2,)], "is no number"),
        (GaussianNLL(), [("n", 4), ("n", 2)], "a variance for each mean"),
        (Distillation(), [("n", 4), ("n", 5)], "scores of the same classes"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(loss: Loss, shapes: Any, why: str) -> None:
    with pytest.raises(SignatureError, match=why):
        loss.targets(*(ArraySpec(f"output_{place}", "float32", shape) for place, shape in enumerate(shapes)))


@pytest.mark.parametrize(
    "make", [lambda: InfoNCE(0.0), lambda: Triplet(p=0.5), lambda: GaussianNLL(eps=0.0), lambda: Distillation(-1.0)]
)
def test_settings_without_a_meaning_are_refused(make: Callable[[], Loss]) -> None:
    with pytest.raises(ConfigurationError):
        make()
