"""Parameters that no gradient of the loss reaches keep their values, as in PyTorch."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import ExportWarning, UnsupportedModelError
from edgeopt.losses import MSE
from edgeopt.optimizers import SGD, AdamW, Group
from edgeopt.transforms import ClipByGlobalNorm


class Net(nn.Module):
    """A body, a head, a second head, and a layer that nothing uses."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.body, self.head, self.other, self.pooler = (nn.Linear(3, 3) for _ in range(4))

    def forward(self, x: torch.Tensor) -> Any:
        if self.kind == "no_grad":
            with torch.no_grad():
                h = torch.tanh(self.body(x))
        elif self.kind == "rounded":
            h = torch.round(self.body(x))
        else:
            h = torch.tanh(self.body(x))
        h = h.detach() if self.kind == "detach" else h
        return {"y": self.head(h), "z": self.other(h)}


def export(kind: str, **settings: Any) -> tuple[nn.Module, edgeopt.Bundle]:
    torch.manual_seed(0)
    module = Net(kind).double()
    example = torch.zeros(2, 3, dtype=torch.float64)
    settings = {"loss": MSE(), "optimizer": AdamW(0.01, weight_decay=0.3), **settings}
    return copy.deepcopy(module).train(), edgeopt.export(module, example, verbose=False, **settings)


@pytest.mark.parametrize("kind", ["unused", "no_grad", "detach", "rounded"])
def test_they_neither_decay_nor_drift(kind: str) -> None:
    with pytest.warns(ExportWarning, match=r"no gradient for \d parameter\(s\).*pooler.weight") as caught:
        reference, bundle = export(kind)
    (text,) = [str(entry.message) for entry in caught if issubclass(entry.category, ExportWarning)]
    assert "\n" not in text
    assert ("body.weight and body.bias (behind detach" in text) == (kind in ("no_grad", "detach"))
    optimizer = torch.optim.AdamW(reference.parameters(), 0.01, weight_decay=0.3)
    stepped, accumulated, rng = bundle.session(), bundle.session(), np.random.default_rng(0)
    for _ in range(5):
        x, y = rng.standard_normal((2, 4, 3))
        optimizer.zero_grad()
        nn.functional.mse_loss(reference(torch.from_numpy(x))["y"], torch.from_numpy(y)).backward()
        optimizer.step()
        stepped.step((x, y))
        accumulated.accumulate((x, y))
        accumulated.apply()
    without = {name for name, parameter in reference.named_parameters() if parameter.grad is None}
    for name, parameter in reference.named_parameters():
        for session in (stepped, accumulated):
            np.testing.assert_allclose(session.parameters()[name], parameter.detach(), rtol=1e-9, err_msg=name)
    specs = {spec.name: spec for spec in bundle.manifest.tensors}
    assert {name for name, spec in specs.items() if spec.role == "parameter" and not spec.trainable} == without
    assert not without & {spec.parameter for spec in (*specs.values(), *bundle.manifest.accumulators)}


def test_another_output_reaches_others() -> None:
    _, bundle = export("unused", output="z")
    trained = {spec.name for spec in bundle.manifest.tensors if spec.trainable}
    assert trained == {f"{part}.{kind}" for part in ("body", "other") for kind in ("weight", "bias")}
    assert [entry.warning for entry in bundle.decisions if entry.kind == "no_gradient"] == [True]


def test_groups_transforms_and_products_do_without_them() -> None:
    optimizer = [Group("pooler.*", lr_multiplier=2.0), Group("*.bias", weight_decay=0.0), AdamW(0.01)]
    _, bundle = export("unused", optimizer=optimizer, transforms=[ClipByGlobalNorm(0.1)], hessian_vector=True)
    vectors = {port.tensor for port in bundle.manifest.signatures["hessian_vector"].inputs if port.kind == "vector"}
    assert vectors == {f"{part}.{kind}" for part in ("body", "head") for kind in ("weight", "bias")}
    assert not any("group_1" in number.name for number in bundle.manifest.hyperparameters)
    x, y = np.random.default_rng(0).standard_normal((2, 4, 3))
    for one in (bundle, bundle.with_optimizer(SGD(0.1, momentum=0.9, weight_decay=0.5)).bundle):
        session = one.session()
        before = session.parameters()
        session.step((x, y))
        after = session.parameters()
        assert {name for name in after if not np.array_equal(after[name], before[name])} == vectors


def test_no_warning_where_all_are_reached() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, bundle = export("unused", trainable=["body.*", "head.*"])
    assert "no_gradient" not in [entry.kind for entry in bundle.decisions]


@pytest.mark.parametrize(
    ("kind", "trainable", "why"),
    [
        ("detach", "body.*", r"body.weight and body.bias \(behind detach, no_grad or whole numbers\)"),
        ("unused", "pooler.*", r"pooler.weight and pooler.bias \(the output 'y' does not depend on them\)"),
    ],
)
def test_where_nothing_is_reached_there_is_no_export(kind: str, trainable: str, why: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"No gradient of the loss reaches a trainable parameter: {why}"):
        export(kind, trainable=trainable)


def test_a_file_whose_loss_reads_another_output() -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17]>
    model (float[n, 2] x) => (float[n, 2] y, int64[n, 2] place)
    <float[2, 2] w = {1, 2, 3, 4}, float[2, 2] v = {1, 2, 3, 4}> {
        h = MatMul(x, w)
        k = MatMul(x, v)
        place = Cast<to = 7>(k)
        back = Cast<to = 1>(place)
        s = Add(h, back)
        y = Identity(s)
    }
    """)
    with pytest.warns(ExportWarning, match=r"1 parameter\(s\).*: v \(behind"):
        bundle = edgeopt.export(model, loss=MSE(), optimizer=SGD(0.1, weight_decay=0.5))
    assert [spec.name for spec in bundle.manifest.tensors if spec.trainable] == ["w"]


def test_very_many_are_counted() -> None:
    module = nn.ModuleList(nn.Linear(2, 2) for _ in range(20))
    module.forward = module[0].forward  # the rest is never used
    with pytest.warns(ExportWarning, match=r"38 parameter\(s\).*4.bias and 30 more"):
        edgeopt.export(module, torch.zeros(2, 2), loss=MSE(), optimizer=SGD(0.1))
