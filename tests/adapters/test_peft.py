"""Training with adapters, step by step beside PEFT: the same weights, batches and optimizer."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import edgeopt
from edgeopt.adapters import IA3, DoRA, LoRA
from edgeopt.optimizers import AdamW
from edgeopt_runtime import TrainingSession

peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install edgeopt[dev]")


class Dense(torch.nn.Module):
    """Products of every form: on a matrix and on a stack of them, with a bias and without."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.second = torch.nn.Linear(8, 7, bias=False)
        self.third = torch.nn.Linear(7, 8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x):
        inner = torch.tanh(self.second(torch.tanh(self.first(x))))
        return self.head(torch.tanh(self.third(inner.mean(1))))

    def inputs(self, random):
        return torch.from_numpy(random.standard_normal((4, 5, 6)).astype(np.float32))


class Images(torch.nn.Module):
    """Convolutions with strides and padding, and one by one."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.second = torch.nn.Conv2d(8, 6, 1, bias=False)
        self.head = torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))).mean((2, 3)))

    def inputs(self, random):
        return torch.from_numpy(random.standard_normal((4, 3, 9, 7)).astype(np.float32))


class Tokens(torch.nn.Module):
    """An embedding, some of whose rows are read twice."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 6)
        self.first = torch.nn.Linear(6, 8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.first(self.embedding(x))).mean(1))

    def inputs(self, random):
        return torch.from_numpy(random.integers(0, 11, (4, 9)))


def lora(**settings):
    return lambda targets: peft.LoraConfig(r=4, lora_alpha=6, target_modules=targets, **settings)


def ia3(feedforward=()):
    return lambda targets: peft.IA3Config(target_modules=targets, feedforward_modules=list(feedforward))


CASES = {
    "lora-linear": (Dense, ["first", "second", "third"], LoRA(4, 6.0), lora()),
    "lora-convolution": (Images, ["first", "second"], LoRA(4, 6.0), lora()),
    "lora-embedding": (Tokens, ["embedding", "first"], LoRA(4, 6.0), lora()),
    "rslora": (Dense, ["first", "third"], LoRA(4, 6.0, rank_stabilized=True), lora(use_rslora=True)),
    "dora-linear": (Dense, ["first", "second", "third"], DoRA(4, 6.0), lora(use_dora=True)),
    "dora-convolution": (Images, ["first", "second"], DoRA(4, 6.0), lora(use_dora=True)),
    "dora-embedding": (Tokens, ["embedding", "first"], DoRA(4, 6.0), lora(use_dora=True)),
    "ia3-linear": (Dense, ["first", "second", "third"], IA3(), ia3()),
    "ia3-feedforward": (Dense, ["first", "second", "third"], IA3(feedforward="third"), ia3(["third"])),
    "ia3-convolution": (Images, ["first", "second"], IA3(), ia3()),
    "ia3-convolution-feedforward": (Images, ["first", "second"], IA3(feedforward="second"), ia3(["second"])),
}


def peft_model(model, config):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what it saves later
        return peft.get_peft_model(model, config)


def shared(session: TrainingSession, module: torch.nn.Module, random: np.random.Generator) -> None:
    """Give both the same adapters, none of whose numbers is zero."""
    own = {}
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            key = name.removeprefix("base_model.model.").replace(".default", "")
            key = key.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")
            if parameter.requires_grad:
                moved = parameter.numpy() + 0.3 * random.standard_normal(parameter.shape)
                own[key] = moved.astype(np.float32)
                parameter.copy_(torch.from_numpy(own[key]))
    session.load_parameters(own)
    trained = {spec.name for spec in session.manifest.tensors if spec.trainable}
    assert trained == own.keys()


@pytest.mark.parametrize("case", CASES)
def test_five_steps_equal_those_of_peft(case, tmp_path):
    network, targets, adapter, config = CASES[case]
    random = np.random.default_rng(0)
    torch.manual_seed(0)
    model: Any = network()
    x = model.inputs(random)
    labels = random.integers(0, 3, len(x))
    adapter = type(adapter)(**{**vars(adapter), "targets": targets})
    bundle = edgeopt.export(model, x, loss="cross_entropy", optimizer=AdamW(1e-2), adapters=adapter, verbose=False)
    assert "checked" in {decision.kind for decision in bundle.decisions}
    session = bundle.session()
    module = peft_model(model, config(targets))
    shared(session, module, random)
    optimizer = torch.optim.AdamW([each for each in module.parameters() if each.requires_grad], lr=1e-2)
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(module(x), torch.from_numpy(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert session.step(x.numpy(), labels)["loss"] == pytest.approx(loss.item(), rel=2e-6)
    expected = module(x).detach().numpy()
    np.testing.assert_allclose(np.asarray(session.predict(x.numpy())), expected, rtol=2e-5, atol=2e-6)
    for merge in (True, False):
        session.export_inference(tmp_path / "model.onnx", merge=merge)
        inference = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
        (found,) = inference.run(None, {inference.get_inputs()[0].name: x.numpy()})
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
