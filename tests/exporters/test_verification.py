"""Every export is compared with its module: what is broken on purpose is found, named, and refused."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from onnxscript import opset18
from torch import nn
from torch.utils.checkpoint import checkpoint

import edgeopt
from edgeopt.errors import ExportDifferenceError, ExportWarning, SignatureError, UnsupportedModelError
from edgeopt_exporters.pytorch import calling, capture, exporter
from edgeopt_exporters.pytorch.graph import to_forward_graph
from edgeopt_exporters.pytorch.reference import ModuleReference
from edgeopt_exporters.pytorch.translations import TRANSLATIONS, batch_norm

op: Any = opset18
aten = torch.ops.aten


def export(module: nn.Module, examples: Any, **settings: Any) -> edgeopt.Bundle:
    defaults = {"loss": edgeopt.losses.MSE(), "optimizer": edgeopt.optimizers.SGD(lr=0.1)}
    return edgeopt.export(module, examples, **{**defaults, **settings}, verbose=False)


def kinds(bundle: edgeopt.Bundle) -> dict[str, str]:
    return {decision.subject: decision.kind for decision in bundle.decisions}


class Relu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


@pytest.fixture
def translated(monkeypatch):
    """Put a translation of one's own into the table that torch's exporter gets."""

    def put(operator: Any, translation: Any) -> None:
        monkeypatch.setattr(exporter, "TRANSLATIONS", {**TRANSLATIONS, operator: translation})

    return put


def test_what_was_compared_is_said_and_kept(tmp_path):
    bundle = export(Relu(), torch.randn(4, 6))
    assert kinds(bundle) == {"model": "checked", "batch": "symbolic"}
    bundle.save(tmp_path / "b.edgeopt")
    assert edgeopt.Bundle.load(tmp_path / "b.edgeopt").decisions == bundle.decisions


def test_a_wrong_value_is_found_in_the_output(translated):
    translated(aten.relu.default, lambda x: op.Relu(op.Sub(x, op.CastLike(op.Constant(value_float=1e-3), x))))
    with pytest.raises(ExportDifferenceError, match="the output 'output' of predict"):
        export(Relu(), torch.randn(4, 6))


def test_without_the_check_it_is_exported(translated):
    translated(aten.relu.default, lambda x: op.Identity(x))
    assert kinds(export(Relu(), torch.randn(4, 6), check=False)) == {}


def test_a_wrong_gradient_is_found_by_the_name_of_the_parameter(monkeypatch):
    class Detached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(6, 6), nn.Linear(6, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.body(x)
            return self.head(h + torch.sin(h).detach())

    monkeypatch.setattr("edgeopt_exporters.pytorch.captured.stop_outputs", lambda graph, shared: None)
    with pytest.raises(ExportDifferenceError, match=r"gradient of 'body\.weight'"):
        export(Detached(), torch.randn(4, 6))


def test_statistics_that_do_not_move_are_found(translated):
    def frozen(x: Any, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> Any:
        return (
            *batch_norm._training_batch_norm(x, weight, bias, mean, var, *rest)[:3],
            op.Identity(mean),
            op.Identity(var),
        )

    translated(aten._native_batch_norm_legit_functional.default, frozen)
    with pytest.raises(ExportDifferenceError, match=r"'1\.running_mean' after one training pass"):
        export(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)), torch.randn(4, 6))


def _of_the_example(x: Any) -> Any:
    return op.Reshape(op.Relu(x), op.Constant(value_ints=[4, 4]))


def _wrong_beyond_four(x: Any) -> Any:
    rows = op.CastLike(op.Sub(op.Shape(x, start=0, end=1), op.Constant(value_ints=[4])), x)
    return op.Add(op.Relu(x), rows)


@pytest.mark.parametrize("translation", [_of_the_example, _wrong_beyond_four])
def test_a_size_that_is_baked_in_is_not_promised(translated, translation):
    translated(aten.relu.default, translation)
    bundle = export(Relu(), torch.randn(4, 6))
    assert [spec.shape for spec in bundle.manifest.inputs] == [(4, 6), (4, 4)]
    assert kinds(bundle)["batch"] == "fixed"


def test_a_dimension_that_was_asked_for_is_refused_if_it_cannot_change(translated):
    translated(aten.relu.default, _wrong_beyond_four)
    with pytest.raises(SignatureError, match="'rows': at rows = 5"):
        export(Relu(), torch.randn(4, 6), dynamic_batch=False, dynamic_shapes={"x": {0: "rows"}})


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.reshape(x.shape[0] // 2, 2, 6).mean(1))


def test_where_the_model_takes_even_sizes_only_those_are_tried():
    (said,) = [
        decision.text for decision in export(Pairs(), torch.randn(4, 6)).decisions if decision.kind == "symbolic"
    ]
    assert said == "batch is symbolic: everything equals the model's at 4 and at 8"


class Random(nn.Module):
    """Every way to draw numbers that a graph has."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.linear(x)
        dropped = nn.functional.dropout(h, 0.3, training=True) + nn.functional.dropout(h, 0.8, training=True)
        noisy = h + torch.randn_like(h) * h + torch.rand_like(h) * h.sin()
        return dropped + noisy + torch.bernoulli(torch.sigmoid(h)) + torch.empty_like(h).bernoulli_(0.9) / 0.9


def test_random_models_are_compared_at_the_quartiles():
    assert kinds(export(Random(), torch.randn(4, 6)))["model"] == "checked"


@pytest.mark.parametrize(("dropout", "kind"), [(0.0, "checked"), (0.5, "checked")])
def test_fused_attention_is_compared(dropout, kind):
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 18)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            query, key, value = self.linear(x).chunk(3, -1)
            return nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout)

    assert kinds(export(Attention(), torch.randn(2, 1, 4, 6)))["model"] == kind


@pytest.mark.parametrize("ratio", [0.1, 0.3])
def test_the_ratio_of_dropout_is_a_double(ratio):
    layer = nn.TransformerEncoderLayer(6, 2, 12, dropout=ratio, batch_first=True).double()
    assert kinds(export(layer, torch.randn(3, 4, 6, dtype=torch.float64)))["model"] == "checked"


def test_a_graph_that_does_not_load_is_a_typed_error(translated):
    translated(aten.relu.default, lambda x: op.Add(x, op.Constant(value_ints=[1])))
    with pytest.raises(ExportDifferenceError, match="does not run the exported graphs"):
        export(Relu(), torch.randn(4, 6))


def test_a_draw_that_is_not_found_is_composed_anew(monkeypatch):
    """Names say where random numbers are drawn; without them the graphs are made again."""
    monkeypatch.setattr("edgeopt_exporters.verification.quartile.kind_of_draw", lambda name: None)
    assert kinds(export(Random(), torch.randn(4, 6)))["model"] == "checked"


def test_a_dropout_of_another_ratio_is_found(monkeypatch):
    original = exporter._translate

    def with_less(*args: Any) -> Any:
        model = original(*args)
        for node in model.graph:
            if node.op_type == "Dropout":
                node.op_type = "Identity"
                node.resize_inputs(1)
                node.resize_outputs(1)
        return model

    monkeypatch.setattr(exporter, "_translate", with_less)
    with pytest.raises(ExportDifferenceError, match="after one training pass"):
        export(nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5)), torch.randn(4, 6))


def test_draws_that_cannot_be_repeated_are_said(monkeypatch):
    monkeypatch.setattr("edgeopt_exporters.pytorch.quartile._LIKE", {})
    with pytest.warns(ExportWarning, match=r"not compared with the model: it draws random numbers by aten\.rand"):
        bundle = export(Random(), torch.randn(4, 6))
    assert kinds(bundle)["model"] == "unchecked"


def test_the_module_is_left_as_it_was():
    module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    random = torch.random.get_rng_state()
    export(module, torch.randn(4, 6, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(torch.random.get_rng_state(), random)
    assert not any(part.training for part in module.modules())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_a_model_as_sensitive_as_its_export_is_no_difference():
    class Sensitive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(1e5 * self.linear(x))

    assert kinds(export(Sensitive(), torch.randn(4, 6)))["model"] == "checked"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_precision_is_the_models(translated, dtype):
    error = 2e-4 if dtype == torch.float32 else 1e-11
    translated(aten.relu.default, lambda x: op.Mul(op.Relu(x), op.CastLike(_double(1.0 + error), x)))
    with pytest.raises(ExportDifferenceError):
        export(Relu().to(dtype), torch.randn(4, 6, dtype=dtype))


def _double(value: float) -> Any:
    import onnx

    return op.Constant(value=onnx.helper.make_tensor("value", onnx.TensorProto.DOUBLE, [], [value]))


def test_a_loss_of_ones_own_gets_targets_it_takes():
    bundle = export(Relu(), torch.randn(4, 6), loss=edgeopt.losses.CrossEntropy(weight=(1.0, 2.0, 0.5, 1.0)))
    assert kinds(bundle)["model"] == "checked"
    assert np.isfinite(bundle.session().step((np.ones((2, 6), np.float32), np.asarray([0, 3])))["loss"])


def test_a_choice_among_equal_elements_is_named_as_the_cause():
    class Best(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor([1.0, 1.0, 0.5, 1.0]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.w * x).topk(1, 1).values

    with pytest.raises(ExportDifferenceError, match="equal elements that topk or sort"):
        export(Best(), torch.ones(3, 4))


# --- what forward does besides computing, broken on purpose


class Momentum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(6, 4), nn.Linear(6, 4).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for key, query in zip(self.k.parameters(), self.q.parameters(), strict=True):
                key.mul_(0.9).add_(query, alpha=0.1)
        return self.q(x) * self.k(x)


def test_parameters_whose_writes_are_lost_are_found(monkeypatch):
    def without_writes(*args: Any) -> Any:
        graph = to_forward_graph(*args)
        outputs = graph.model.graph.outputs
        outputs[:] = outputs[: len(outputs) - len(graph.updated_parameters)]
        return replace(graph, updated_parameters=())

    monkeypatch.setattr(exporter, "to_forward_graph", without_writes)
    with pytest.raises(ExportDifferenceError, match=r"'k\.weight' after one training pass"):
        export(Momentum(), torch.randn(4, 6))


class Without(nn.Module):
    """A part of it computes without gradients, by one way or another."""

    def __init__(self, context: Any) -> None:
        super().__init__()
        self.body, self.head, self.context = nn.Linear(6, 6), nn.Linear(6, 4), context

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with self.context():
            h = torch.tanh(self.body(x))
        return self.head(h.clone())


def test_inference_mode_that_is_not_seen_is_found(monkeypatch):
    monkeypatch.setattr(capture, "inference_as_no_grad", nullcontext)
    with pytest.raises(ExportDifferenceError, match=r"gradient of 'body\.weight'"):
        export(Without(torch.inference_mode), torch.randn(4, 6))


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(checkpoint(lambda v: torch.tanh(self.block(v)), self.stem(x), use_reentrant=True))


def test_gradients_that_stop_at_a_checkpoint_are_found(monkeypatch):
    monkeypatch.setattr(capture, "checkpoints_called", nullcontext)
    with pytest.raises((ExportDifferenceError, UnsupportedModelError), match=r"[Nn]o gradient|gradient of"):
        export(Checkpointed(), torch.randn(4, 6))


def test_a_hook_that_was_not_refused_is_found(monkeypatch):
    monkeypatch.setattr(exporter, "refuse_gradient_hooks", lambda module: None)
    module = Relu()
    module.linear.weight.register_hook(lambda gradient: gradient * 0)
    with pytest.raises(ExportDifferenceError, match=r"gradient of 'linear\.weight'"):
        export(module, torch.randn(4, 6))


def test_buffers_that_tracing_moved_are_found(monkeypatch):
    """The bundle's state is the module's from before the export."""

    class Counting(nn.Module):
        calls: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 4)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            result: torch.Tensor = self.linear(x) / self.calls
            return result

    original = exporter._to_numpy
    monkeypatch.setattr(exporter, "_to_numpy", lambda tensor: original(tensor) + np.float32(tensor.ndim == 0))
    with pytest.raises(ExportDifferenceError, match="the output 'output' of predict"):
        export(Counting(), torch.randn(4, 6))


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.main, self.aux = nn.Linear(6, 4), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return {"aux": self.aux(x), "main": self.main(x)} if self.training else {"main": self.main(x)}


def test_outputs_paired_by_position_are_found(monkeypatch):
    monkeypatch.setattr(exporter, "paired", lambda trial, output: (("main", "aux"), ("main",)))
    original = ModuleReference.__init__

    def by_name(self: Any, module: Any, examples: Any, outputs: Any, evaluating: Any = ()) -> None:
        original(self, module, examples, {True: ("aux", "main"), False: ("main",)}, evaluating)

    monkeypatch.setattr(ModuleReference, "__init__", by_name)
    with pytest.raises(ExportDifferenceError, match=r"'loss' after one training pass"):
        export(Heads(), torch.randn(4, 6), output="main")


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.linear(a) - 2 * self.linear(b)


def test_two_inputs_that_were_merged_are_not_promised_at_other_sizes(monkeypatch):
    monkeypatch.setattr(calling, "_own", lambda name, leaf: leaf)
    x = torch.randn(4, 6)
    assert kinds(export(Two(), (x, x)))["batch"] == "fixed"


# --- translations, broken on purpose: those of torch's exporter in the place of ours

BROKEN = {
    "scatter_reduce": (
        lambda h, y, p: torch.zeros(5, 6, dtype=h.dtype).scatter_reduce(0, y[:, None].expand(-1, 6), h, "mean"),
        "output",
    ),
    "divisor_override": (
        lambda h, y, p: torch.nn.functional.avg_pool2d(h[:, None, None].expand(-1, 1, 6, 6), 2, divisor_override=3),
        "output",
    ),
    "label smoothing": (
        lambda h, y, p: h * torch.nn.functional.cross_entropy(h, y, label_smoothing=0.2),
        "output",
    ),
    "soft labels": (lambda h, y, p: h * torch.nn.functional.cross_entropy(h, p), "output"),
    "numbers in float64": (lambda h, y, p: h * 0.3 + 0.1, "output"),
    "max of a row with ties": (lambda h, y, p: torch.cat([h, h.detach()], 1).max(1).values, "gradient"),
    "eps of BatchNorm": (
        lambda h, y, p: torch.nn.functional.batch_norm(h * 1e-3, None, None, training=True),
        "output|after one training pass",
    ),
}


class Function(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(6, 6), function

    def forward(self, x: torch.Tensor, labels: torch.Tensor, soft: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.function(self.linear(x), labels, soft)
        return result


def test_instance_norm_whose_statistics_stay_would_be_found(monkeypatch):
    module = nn.Sequential(nn.Conv1d(2, 3, 1), nn.InstanceNorm1d(3, affine=True, track_running_stats=True))
    assert kinds(export(module, torch.randn(4, 2, 5)))["model"] == "checked"
    monkeypatch.setattr("edgeopt_exporters.pytorch.captured.rewrite", lambda graph, table, **settings: None)
    with pytest.raises(ExportDifferenceError, match=r"output' of predict|'1\.running_(mean|var)' after"):
        export(module, torch.randn(4, 2, 5))


@pytest.mark.parametrize(("function", "where"), BROKEN.values(), ids=BROKEN.keys())
def test_torchs_own_translations_would_be_found(monkeypatch, function, where):
    examples = (torch.randn(5, 6).double(), torch.tensor([0, 1, 3, 2, 1]), torch.softmax(torch.randn(5, 6).double(), 1))
    module = Function(function).double()
    assert kinds(export(module, examples))["model"] == "checked"
    own = {operator: translation for operator, translation in TRANSLATIONS.items() if operator.namespace != "aten"}
    monkeypatch.setattr(exporter, "TRANSLATIONS", own)
    monkeypatch.setattr(exporter, "exact_casts", nullcontext)
    monkeypatch.setattr("edgeopt_exporters.pytorch.captured.rewrite", lambda graph, table, **settings: None)
    monkeypatch.setattr(capture, "FUNCTIONS", {})
    with pytest.raises(ExportDifferenceError, match=where):
        export(module, examples)
