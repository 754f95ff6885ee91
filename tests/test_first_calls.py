"""What someone who comes from PyTorch, Keras, transformers or optax tries first, as their own documentation has it.

Each call either works or is refused in one line that names what to do instead, before anything is traced.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import optax
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt_exporters import export as exporting

TORCH = "https://docs.pytorch.org/"
QUICKSTART = TORCH + "tutorials/beginner/basics/quickstart_tutorial.html"
OPTIMIZATION = TORCH + "tutorials/beginner/basics/optimization_tutorial.html"
ONNX_EXPORT = TORCH + "docs/stable/onnx_export.html"
TORCH_EXPORT = TORCH + "docs/stable/user_guide/torch_compiler/export.html"
SAVING = TORCH + "tutorials/beginner/saving_loading_models.html"
OPTIM = TORCH + "docs/stable/optim.html"
KERAS = "https://keras.io/guides/training_with_built_in_methods/"
KERAS_CALLS = "https://keras.io/api/models/model_training_apis/"
TRANSFORMERS = "https://huggingface.co/docs/transformers/training"
SCHEDULES = "https://huggingface.co/docs/transformers/main_classes/optimizer_schedules"
OPTAX = "https://optax.readthedocs.io/en/latest/getting_started.html"
ONNXRUNTIME = "https://onnxruntime.ai/docs/api/python/api_summary.html"


class Call(NamedTuple):
    """A first call: where it is from, how it is written, and what must happen.

    Attributes:
        source: The page whose idiom it is.
        code: The call, in the names that `names` gives.
        refused: Part of the one line that refuses it; None where it works.
    """

    source: str
    code: str
    refused: str | None = None


CALLS = [
    # Components.
    Call(QUICKSTART, "export(model, x, loss=nn.CrossEntropyLoss(), optimizer=torch.optim.SGD(model.parameters(), lr=1e-3))"),
    Call(OPTIMIZATION, "loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1); export(model, x, loss=loss_fn, optimizer='sgd')"),
    Call(OPTIMIZATION, "export(model, x, loss=nn.functional.cross_entropy, optimizer=torch.optim.AdamW)"),
    Call(QUICKSTART, "export(model, x, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters()))", "all else by name: loss="),
    Call(QUICKSTART, "export(model, x, loss_fn=nn.CrossEntropyLoss(), optimizer='sgd')", "'loss_fn': give loss="),
    Call(QUICKSTART, "export(model, x, criterion='cross_entropy', optimizer='sgd')", "'criterion': give loss="),
    Call(QUICKSTART, "export(model, x, loss='cross_entropy')", "needs optimizer="),
    Call(OPTIM, "export(model, x, loss='mse', optimizer='adamw', lr=1e-3)", "optimizer=edgeopt.optimizers.AdamW(lr=1e-3)"),
    Call(OPTIM, "export(model, x, loss='mse', optimizer=torch.optim.SGD([{'params': model[0].parameters()}, "
         "{'params': model[2].parameters(), 'lr': 1e-2}], lr=1e-3, momentum=0.9))"),
    Call(OPTIM, "optimizer = torch.optim.SGD(model.parameters(), lr=0.1); "
         "torch.optim.lr_scheduler.StepLR(optimizer, step_size=30); export(model, x, loss='mse', optimizer=optimizer)",
         "the rate as a schedule: edgeopt.optimizers.AdamW(lr=edgeopt.schedules"),
    Call(OPTIM, "export(model, x, loss='mse', optimizer=torch.optim.LBFGS(model.parameters()))", "method=\"lbfgs\""),
    Call(OPTIM, "export(model, x, loss='mse', optimizer='adamw', transforms=nn.utils.clip_grad_norm_)", "ClipByGlobalNorm(1.0)"),
    Call(KERAS, "export(model, x, loss='mse', optimizer='rmsprop', metrics=[])"),
    Call(KERAS, "export(model, x, loss='cross_entropy', optimizer='adam', metrics=['accuracy'])"),
    Call(KERAS, "export(model, x, loss='cross_entropy', optimizer='adam', metrics='accuracy')"),
    Call(KERAS, "export(model, x, loss='sparse_categorical_crossentropy', optimizer='adam')", "give 'cross_entropy', and a model that"),
    Call(KERAS, "export(model, x, loss='binary_crossentropy', optimizer='adam')", "give 'bce_with_logits', and a model that"),
    Call(KERAS, "export(model, x, loss='mae', optimizer=KerasAdam(learning_rate=1e-3))"),
    Call(KERAS, "export(model, x, loss='mse', optimizer='adam', metrics=['mean_absolute_percentage_error'])", "Choose from accuracy"),
    Call(KERAS_CALLS, "export(KerasModel(), x, loss='mse', optimizer='adam')", "model.export(\"model.onnx\", format=\"onnx\")"),
    Call(KERAS_CALLS, "export(model, (1, 28, 28), loss='mse', optimizer='adam')", "give a tensor, torch.zeros(1, 28, 28)"),
    Call(TRANSFORMERS, "export(classifier, tokens, loss='cross_entropy', optimizer=torch.optim.AdamW(classifier.parameters(), lr=5e-5))"),
    Call(TRANSFORMERS, "export(classifier, {**tokens, 'labels': y}, loss='cross_entropy', optimizer='adamw:lr=5e-5')",
         "leave them out of example_inputs"),
    Call(TRANSFORMERS, "export(classifier, tokens, optimizer='adamw', learning_rate=5e-5)", "edgeopt.optimizers.AdamW(lr=1e-3)"),
    Call(SCHEDULES, "export(model, x, loss='mse', optimizer=(torch.optim.AdamW(model.parameters()), scheduler))",
         "counts updates; give the optimizer without it, and the rate as a schedule"),
    Call(OPTAX, "export(model, x, loss='mse', optimizer={'name': 'adam', 'kwargs': {'learning_rate': 1e-2}})"),
    Call(OPTAX, "export(model, x, loss='mse', optimizer=optax.adam(1e-2))", "give the rule, such as edgeopt.optimizers.AdamW"),
    Call(OPTAX, "export(model, x, loss='mse', optimizer=optax.adam)", "give the rule, such as edgeopt.optimizers.AdamW"),
    Call(OPTAX, "export(model, x, loss=optax.l2_loss, optimizer='adam')", "give its equal here, edgeopt.losses.CrossEntropy()"),
    Call(OPTAX, "export(model, x, loss='mse', optimizer='adam', transforms=optax.clip_by_global_norm(1.0))", "ClipByGlobalNorm(1.0)"),
    Call(OPTAX, "export(model, x, loss='mse', optimizer=optax.chain(optax.clip(1.0), optax.adam(1e-2)))", "give the rule, such as"),
    # Models and examples.
    Call(ONNX_EXPORT, "export(model, (x,), loss='mse', optimizer='adamw', dynamic_shapes=({0: 'batch'},))"),
    Call(ONNX_EXPORT, "export(model, (x,), loss='mse', optimizer='adamw', dynamic_axes={'x': {0: 'batch'}})", "give dynamic_shapes="),
    Call(ONNX_EXPORT, "export(model, (x,), loss='mse', optimizer='adamw', opset_version=18)", "no argument 'opset_version'"),
    Call(ONNX_EXPORT, "export(path, loss='mse', optimizer='adamw:lr=0.1')"),
    Call(ONNX_EXPORT, "export(onnx.load(path), loss='mse', optimizer='adamw')"),
    Call(ONNX_EXPORT, "export(path.read_bytes(), loss='mse', optimizer='adamw')"),
    Call(TORCH_EXPORT, "export(model, (x,), loss='mse', optimizer='sgd', dynamic_shapes={'input': {0: torch.export.Dim('batch')}})"),
    Call(TORCH_EXPORT, "export(model, (x,), loss='mse', optimizer='sgd', dynamic_shapes={'input': [torch.export.Dim.AUTO, None]})"),
    Call(TORCH_EXPORT, "export(torch.export.export(model, (x,)), x, loss='mse', optimizer='sgd')", "give the torch.nn.Module"),
    Call(QUICKSTART, "export(nn.Linear, x, loss='mse', optimizer='sgd')", "give an instance, Linear(...)"),
    Call(SAVING, "export(model.state_dict(), x, loss='mse', optimizer='sgd')", "model.load_state_dict(...), and give"),
    Call(SAVING, "export(model.eval(), x.numpy(), loss='mse', optimizer='sgd')"),
    Call(QUICKSTART, "export(model, (x, y), loss='cross_entropy', optimizer='sgd')", "batch[0] of a batch (x, y)"),
    Call(QUICKSTART, "export(model, loader, loss='cross_entropy', optimizer='sgd')", "x, y = next(iter(loader))"),
    Call(OPTIM, "export(model, x, loss='mse', optimizer='sgd', trainable=model[2].parameters())", "trainable='head.*'"),
    # Training.
    Call(SAVING, "edgeopt.load(saved)", "edgeopt.TrainingSession.load(path) trains a bundle"),
    Call(SAVING, "edgeopt.TrainingSession(saved)"),
    Call(SAVING, "session.load_parameters(model.state_dict())"),
    Call(SAVING, "model.load_state_dict({name: torch.from_numpy(w) for name, w in session.parameters().items()})"),
    Call(QUICKSTART, "session.train()", "there are no modes: `step` trains"),
    Call(QUICKSTART, "session.zero_grad()", "`step` does all of it"),
    Call(QUICKSTART, "[session.step(batch) for batch in loader]"),
    Call(QUICKSTART, "session.fit(loader, epochs=2, progress=False)"),
    Call(QUICKSTART, "session.step(x, y)"),
    Call(ONNXRUNTIME, "edgeopt.TrainingSession.load(saved, providers='CPUExecutionProvider').predict(x.numpy())"),
    Call(KERAS_CALLS, "session.fit(x.numpy(), y.numpy(), batch_size=32, epochs=2)", "cut the data into batches"),
    Call(KERAS_CALLS, "session.fit(x.numpy(), y.numpy(), epochs=2)", "range(0, len(x), 32)"),
    Call(KERAS_CALLS, "session.fit([(x, y)], epochs=2, validation_data=(x, y))", "give evaluate_on="),
    Call(KERAS_CALLS, "session.evaluate(x.numpy(), y.numpy())"),
    Call(KERAS_CALLS, "session.compile(optimizer='adam', loss='mse')", "edgeopt.export(..., loss=..., optimizer=...)"),
    Call(KERAS_CALLS, "session.save_weights(saved.with_suffix('.safetensors'))"),
    Call(KERAS_CALLS, "session.load_weights(model.state_dict())"),
    Call(KERAS_CALLS, "bundle.fit(x.numpy(), y.numpy())", "bundle.session() trains"),
]  # fmt: skip


class Classifier(nn.Module):
    """Takes and returns what a classifier of transformers does."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.classifier = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, labels: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        hidden = self.embedding(input_ids)
        if attention_mask is not None:
            hidden = hidden * attention_mask.unsqueeze(-1)
        logits = self.classifier(hidden.mean(1))
        loss = {} if labels is None else {"loss": nn.functional.cross_entropy(logits, labels)}
        return {**loss, "logits": logits}


class Adam:
    """Stands for Keras's, which does not install beside everything else here."""

    __module__ = "keras.src.optimizers.adam"

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate

    def get_config(self) -> dict[str, Any]:
        return {"name": "adam", "learning_rate": self.learning_rate}


class Sequential:
    """Stands for a model of Keras."""

    __module__ = "keras.src.models.sequential"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first_calls")
    text = '<ir_version: 8, opset_import: ["" : 17]> m (float[n, 4] x) => (float[n, 3] y) {y = MatMul(x, w)}'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full((4, 3), 0.5, np.float32), "w"))
    onnx.save(model, folder / "model.onnx")
    edgeopt.export(MODEL, X, loss="cross_entropy", optimizer="sgd", verbose=False).save(folder / "saved.edgeopt")
    return folder


MODEL, X, Y = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), torch.randn(6, 4), torch.arange(6) % 3


@pytest.fixture(scope="module", autouse=True)
def traced_once() -> Iterator[None]:
    """What differs between most calls is what is done with a traced model; tracing it again takes a second each."""
    trace, traced = exporting._from_torch, {}

    def once(asked: Any) -> Any:
        if asked.model is not MODEL or asked.example_inputs is not X or asked.shapes["dynamic_shapes"]:
            return trace(asked)
        if "model" not in traced:
            traced["model"] = trace(asked)
        return traced["model"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "_from_torch", once)
        yield


@pytest.fixture
def names(folder: Path) -> dict[str, Any]:
    model, x, y = MODEL, X, Y
    bundle = edgeopt.Bundle.load(folder / "saved.edgeopt")
    scheduler = torch.optim.lr_scheduler.LambdaLR(torch.optim.AdamW(model.parameters()), lambda step: 1.0 / (1 + step))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=3)
    tokens = {"input_ids": torch.ones(2, 5, dtype=torch.int64), "attention_mask": torch.ones(2, 5)}
    return {
        "edgeopt": edgeopt,
        "torch": torch,
        "nn": nn,
        "onnx": onnx,
        "optax": optax,
        "model": model,
        "x": x,
        "y": y,
        "loader": loader,
        "scheduler": scheduler,
        "classifier": Classifier(),
        "tokens": tokens,
        "KerasAdam": Adam,
        "KerasModel": Sequential,
        "path": folder / "model.onnx",
        "saved": folder / "saved.edgeopt",
        "bundle": bundle,
        "session": bundle.session(),
        # What is checked here is what is taken; whether it computes the same is checked where it is written.
        "export": lambda *args, **settings: edgeopt.export(*args, check=False, verbose=False, **settings),
    }


@pytest.mark.parametrize("call", [call for call in CALLS if call.refused is None], ids=lambda call: call.code[:60])
def test_first_calls_that_work(call: Call, names: dict[str, Any]) -> None:
    *statements, last = call.code.split("; ")
    exec("\n".join(statements), names)
    result = eval(last, names)
    if isinstance(result, edgeopt.Bundle):
        session = result.session()
        batch = {spec.name: _example(spec) for spec in session.signature}
        losses = [session.step(batch)["loss"] for _ in range(3)]
        assert losses[2] < losses[0]


@pytest.mark.parametrize("call", [call for call in CALLS if call.refused is not None], ids=lambda call: call.code[:60])
def test_first_calls_that_are_refused(call: Call, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def traced(*args: object, **settings: object) -> None:
        pytest.fail("the model was traced before the call was refused")

    monkeypatch.setattr("edgeopt_exporters.pytorch.exporter.try_out", traced)
    monkeypatch.setattr(exporting, "compose", traced)
    monkeypatch.setattr(exporting, "from_onnx", traced)
    *statements, last = call.code.split("; ")
    exec("\n".join(statements), names)
    # Attributes that are not there are Python's to refuse, in our words.
    with pytest.raises((edgeopt.errors.EdgeoptError, AttributeError)) as caught:
        eval(last, names)
    message = str(caught.value)
    assert call.refused is not None
    assert call.refused in message
    assert "\n" not in message
    assert len(message) < 600


def test_each_framework_has_its_share() -> None:
    pages = {
        framework: sum(framework in call.source for call in CALLS)
        for framework in ("pytorch", "keras", "huggingface", "optax")
    }
    assert all(count >= 4 for count in pages.values()), pages


def _example(spec: Any) -> np.ndarray[Any, Any]:
    shape = [6 if isinstance(length, str) else length for length in spec.shape]
    if spec.dtype == "int64":
        return (np.arange(np.prod(shape, dtype=int)) % 3).reshape(shape)
    return np.linspace(-1.0, 1.0, int(np.prod(shape)), dtype=np.float32).reshape(shape)
