"""Losses of one's own, in every form that they may have, beside PyTorch: steps, accumulation, and what predicts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt.losses import MSE, FromOutput, from_function, from_onnx, from_torch
from edgeopt.metrics import Accuracy
from edgeopt_runtime import TrainingSession

F = nn.functional
RNG = np.random.default_rng(0)
X = RNG.standard_normal((10, 6)).astype(np.float32)
LABELS = RNG.integers(0, 4, 10)
DEPTH = RNG.standard_normal((10, 4)).astype(np.float32)
IDS = RNG.integers(1, 40, (6, 7))
CLASSES = RNG.integers(0, 3, 6)
NEXT = np.where(RNG.random((6, 7)) < 0.4, -100, IDS)
UNEVEN = (slice(0, 1), slice(1, 4), slice(4, None))

LOSS_MODEL = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17]>
    loss (float[N, C] scores, int64[N] label) => (float[N] each)
    { each = SoftmaxCrossEntropyLoss <reduction = "none"> (scores, label) }
""")
MEAN_MODEL = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17]>
    loss (float[N, C] scores, int64[N] label) => (float mean)
    { mean = SoftmaxCrossEntropyLoss <reduction = "mean"> (scores, label) }
""")


def classifier() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


class Centers(nn.Module):
    """The distance to the centre of a sample's class; centres are trained."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.centers = nn.Parameter(torch.randn(4, 4))

    def forward(self, embedding: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """One number for each sample."""
        return ((embedding - self.centers[label]) ** 2).sum(1)


class WithAuxiliary(nn.Module):
    """A second head, which there is in training only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.trunk, self.main, self.side = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Logits, and in training those of the second head."""
        hidden = torch.tanh(self.trunk(x))
        return {"logits": self.main(hidden), **({"aux": self.side(hidden)} if self.training else {})}


def bert() -> Any:
    transformers = pytest.importorskip("transformers", reason="the oldest dependencies have no transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=3,
        problem_type="single_label_classification",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return transformers.BertForSequenceClassification(config)


def gpt2() -> Any:
    transformers = pytest.importorskip("transformers", reason="the oldest dependencies have no transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=40,
        n_positions=16,
        n_embd=16,
        n_layer=1,
        n_head=2,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        loss_type="ForCausalLM",
    )
    return transformers.GPT2LMHeadModel(config)


def export(model: Any, examples: Any, loss: Any, **settings: Any) -> edgeopt.Bundle:
    return edgeopt.export(model, examples, loss=loss, optimizer="sgd:lr=0.1", verbose=False, **settings)


def by_torch(modules: dict[str, nn.Module], loss: Callable[[], torch.Tensor], steps: int) -> dict[str, Any]:
    """The weights after some steps of PyTorch's SGD, those of a module under its prefix."""
    named = {f"{prefix}{name}": p for prefix, module in modules.items() for name, p in module.named_parameters()}
    optimizer = torch.optim.SGD(named.values(), 0.1)
    for module in modules.values():
        module.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    return {name: value.detach().numpy() for name, value in named.items()}


def check(bundle: edgeopt.Bundle, batch: dict[str, Any], expected: Callable[[int], dict[str, Any]]) -> None:
    """Three steps, and one that is put together from microbatches of different sizes, against PyTorch."""
    session = bundle.session()
    for _ in range(3):
        session.step(batch)
    close(session, expected(3))
    session = bundle.session()
    for rows in UNEVEN:
        session.accumulate({name: array[rows] for name, array in batch.items()})
    session.apply()
    close(session, expected(1))


def close(session: TrainingSession, expected: dict[str, Any]) -> None:
    found = session.parameters()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=2e-6, err_msg=name)


def inputs(bundle: edgeopt.Bundle, kind: str) -> list[str]:
    return [spec.name for spec in bundle.manifest.inputs if spec.kind == kind]


def test_a_model_of_transformers_with_labels_minimises_its_own_loss(tmp_path: Path) -> None:
    examples = {"input_ids": torch.from_numpy(IDS[:2]), "labels": torch.from_numpy(CLASSES[:2])}
    bundle = export(bert(), examples, FromOutput("loss"), metrics=[Accuracy(target="labels")])
    assert (inputs(bundle, "model"), inputs(bundle, "loss")) == (["input_ids"], ["labels"])
    assert [spec.name for spec in bundle.manifest.outputs] == ["logits"]
    assert any("mean over the samples" in decision.text for decision in bundle.manifest.decisions)

    def expected(steps: int) -> dict[str, Any]:
        module = bert()
        ids, labels = torch.from_numpy(IDS), torch.from_numpy(CLASSES)
        return by_torch({"": module}, lambda: module(ids, labels=labels).loss, steps)

    check(bundle, {"input_ids": IDS, "labels": CLASSES}, expected)
    session: Any = bundle.session()
    module = bert().eval()
    with torch.no_grad():
        logits = module(torch.from_numpy(IDS)).logits.numpy()
    np.testing.assert_allclose(session.predict({"input_ids": IDS}), logits, rtol=1e-4, atol=1e-5)
    reported = session.evaluate([{"input_ids": IDS[rows], "labels": CLASSES[rows]} for rows in UNEVEN])
    assert reported["accuracy"] == pytest.approx(np.mean(logits.argmax(1) == CLASSES))
    mean = F.cross_entropy(torch.from_numpy(logits), torch.from_numpy(CLASSES))
    assert reported["loss"] == pytest.approx(float(mean), rel=1e-5)
    session.export_inference(tmp_path / "model.onnx")
    plain = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert [port.name for port in plain.get_inputs()] == ["input_ids"]
    np.testing.assert_allclose(plain.run(None, {"input_ids": IDS})[0], logits, rtol=1e-4, atol=1e-5)


def test_a_language_model_counts_the_tokens_that_it_predicts() -> None:
    examples = {"input_ids": torch.from_numpy(IDS[:2]), "labels": torch.from_numpy(NEXT[:2])}
    loss = FromOutput("loss", counted="labels", shifted=True)
    sequences = {"input_ids": {1: "sequence"}, "labels": {1: "sequence"}}
    bundle = export(gpt2(), examples, loss, dynamic_shapes=sequences)
    assert "sequence" in next(spec.shape for spec in bundle.manifest.inputs if spec.name == "labels")

    def expected(steps: int) -> dict[str, Any]:
        module = gpt2()
        ids, labels = torch.from_numpy(IDS), torch.from_numpy(NEXT)
        return by_torch({"": module}, lambda: module(ids, labels=labels).loss, steps)

    check(bundle, {"input_ids": IDS, "labels": NEXT}, expected)


def test_a_module_of_pytorch_trains_with_the_model() -> None:
    model, centers = classifier(), Centers()
    before = {name: value.clone() for name, value in [*model.named_parameters(), *centers.named_parameters()]}
    bundle = export(model, torch.from_numpy(X[:2]), from_torch(centers, {"label": torch.tensor([0, 1])}))
    assert (inputs(bundle, "model"), inputs(bundle, "loss")) == (["input"], ["label"])
    assert [spec.name for spec in bundle.manifest.outputs] == ["output"]
    assert bundle.manifest.producer["model"] == "Sequential"

    def expected(steps: int) -> dict[str, Any]:
        module, loss = classifier(), Centers()
        x, label = torch.from_numpy(X), torch.from_numpy(LABELS)
        return by_torch({"": module, "loss.": loss}, lambda: loss(module(x), label).mean(), steps)

    assert "loss.centers" in expected(0)
    check(bundle, {"input": X, "label": LABELS}, expected)
    # The model is left as it was.
    assert list(dict(model.named_children())) == ["0", "1", "2"]
    for name, value in [*model.named_parameters(), *centers.named_parameters()]:
        assert torch.equal(value, before[name])


def test_functions_of_pytorch_read_auxiliary_outputs_in_a_sum() -> None:
    def smooth(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, label, label_smoothing=0.1)

    def each(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, label, reduction="none")

    targets = {"label": torch.tensor([0, 1])}
    loss = from_torch(smooth, targets) + 0.4 * from_torch(each, targets, outputs="aux")
    loss = loss + 0.3 * MSE(output="logits", target="depth")
    bundle = export(WithAuxiliary(), torch.from_numpy(X[:2]), loss)
    assert inputs(bundle, "loss") == ["label", "depth"]
    assert [spec.name for spec in bundle.manifest.outputs] == ["logits"]

    def expected(steps: int) -> dict[str, Any]:
        module = WithAuxiliary()
        x, label, depth = (torch.from_numpy(array) for array in (X, LABELS, DEPTH))

        def compute() -> torch.Tensor:
            found = module(x)
            main, aux = found["logits"], found["aux"]
            return smooth(main, label) + 0.4 * F.cross_entropy(aux, label) + 0.3 * F.mse_loss(main, depth)

        return by_torch({"": module}, compute, steps)

    check(bundle, {"x": X, "label": LABELS, "depth": DEPTH}, expected)


def test_a_function_of_arrays_is_a_loss() -> None:
    def power(xp: Any, prediction: Any, depth: Any) -> Any:
        return xp.sum(xp.abs(prediction - depth) ** 1.5, axis=1)

    bundle = export(classifier(), torch.from_numpy(X[:2]), power)

    def expected(steps: int) -> dict[str, Any]:
        module = classifier()
        x, depth = torch.from_numpy(X), torch.from_numpy(DEPTH)
        return by_torch({"": module}, lambda: ((module(x) - depth).abs() ** 1.5).sum(1).mean(), steps)

    check(bundle, {"input": X, "depth": DEPTH}, expected)


def test_a_function_of_arrays_may_say_weights() -> None:
    def weighted(xp: Any, prediction: Any, label: Any, importance: Any) -> Any:
        return -xp.squeeze(
            xp.take_along_axis(xp.log_softmax(prediction, 1), xp.expand_dims(label, axis=1), axis=1), axis=1
        ) * importance, importance

    importance = RNG.uniform(0.5, 2.0, 10).astype(np.float32)
    loss = from_function(weighted, targets={"label": "int64", "importance": ("float32", ("batch",))})
    bundle = export(classifier(), torch.from_numpy(X[:2]), loss)

    def expected(steps: int) -> dict[str, Any]:
        module = classifier()
        x, label, weight = (torch.from_numpy(array) for array in (X, LABELS, importance))

        def compute() -> torch.Tensor:
            return (F.cross_entropy(module(x), label, reduction="none") * weight).sum() / weight.sum()

        return by_torch({"": module}, compute, steps)

    check(bundle, {"input": X, "label": LABELS, "importance": importance}, expected)


@pytest.mark.parametrize("loss_model", [LOSS_MODEL, MEAN_MODEL], ids=["each", "mean"])
@pytest.mark.parametrize("as_file", [False, True], ids=["module", "file"])
def test_an_onnx_model_is_a_loss_of_modules_and_files(loss_model: Any, as_file: bool, tmp_path: Path) -> None:
    model: Any = classifier()
    if as_file:
        path = tmp_path / "model.onnx"
        batch = {"input": {0: torch.export.Dim("batch")}}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the oldest torch warns of itself
            torch.onnx.export(
                model.eval(),
                (torch.from_numpy(X[:2]),),
                path,
                dynamo=True,
                dynamic_shapes=batch,
                input_names=["input"],
                output_names=["scores"],
                verbose=False,
            )
        model = path
    onnx.save(loss_model, tmp_path / "loss.onnx")
    examples = None if as_file else torch.from_numpy(X[:2])
    bundle = export(model, examples, from_onnx(tmp_path / "loss.onnx"))
    assert inputs(bundle, "loss") == ["label"]

    def expected(steps: int) -> dict[str, Any]:
        module = classifier()
        x, label = torch.from_numpy(X), torch.from_numpy(LABELS)
        return by_torch({"": module}, lambda: F.cross_entropy(module(x), label), steps)

    check(bundle, {inputs(bundle, "model")[0]: X, "label": LABELS}, expected)


def no_mean(xp: Any, prediction: Any, target: Any) -> Any:
    return xp.sum(prediction - target)


def scalar(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (prediction - target).square().mean()


@pytest.mark.parametrize(
    ("loss", "error", "words"),
    [
        (no_mean, SignatureError, "single number"),
        (scalar, ConfigurationError, "from_torch"),
        (FromOutput("lost"), SignatureError, "no output of that name"),
        (FromOutput("output", counted="labels"), SignatureError, "none of the model's labels"),
        (from_torch(scalar, {"input": torch.zeros(2, 4)}), SignatureError, "name of an input"),
        (from_torch(scalar, {"target": torch.zeros(2, 4)}, outputs="side"), SignatureError, "'side'"),
        (from_onnx(LOSS_MODEL, outputs={"logits": "output"}), SignatureError, "no input 'logits'"),
        (from_onnx(3), ConfigurationError, "path, bytes"),
    ],
)
def test_what_is_no_loss_is_refused(loss: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        export(classifier(), torch.from_numpy(X[:2]), loss)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="weight and counted"):
        FromOutput("loss", weight="count", counted="labels")
    with pytest.raises(ConfigurationError, match="shifted"):
        FromOutput("loss", shifted=True)
    with pytest.raises(ConfigurationError, match="takes xp, prediction, target"):
        from_function(no_mean, outputs=("one", "two", "three"))
