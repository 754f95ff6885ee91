"""Adapters in transformers as people use them, from the module and from an ONNX file of it, beside PEFT."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import edgeopt
from edgeopt.adapters import IA3, DoRA, LoRA
from edgeopt.losses import CrossEntropy
from edgeopt.optimizers import AdamW

peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install edgeopt[dev]")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install edgeopt[dev]")

TOKENS = np.random.default_rng(0).integers(0, 50, (3, 8))
LABELS = np.array([1, 0, 2])
BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def bert() -> Any:
    config = transformers.BertConfig(vocab_size=50, num_labels=3, **BERT, hidden_dropout_prob=0.0)
    config.attention_probs_dropout_prob = 0.0
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # as after training; exporters take equal ones for one
                parameter += 0.1 * torch.randn(parameter.shape)
    return model


def gpt2() -> Any:
    config = transformers.GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=2, n_positions=16)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(config).eval()


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens).logits


def adapted(model, session, **settings):
    """The model under PEFT with the adapters of a session."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about Conv1D, whose weights lie the other way round
        module = peft.get_peft_model(model, peft.LoraConfig(**settings))
    own = session.parameters()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                key = name.removeprefix("base_model.model.").replace(".default", "").replace(".modules_to_save", "")
                key = key.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")
                parameter.copy_(torch.from_numpy(own[f"model.{key}"]))
    return module


def steps(module, session, labels, rel=1e-5):
    optimizer = torch.optim.AdamW([each for each in module.parameters() if each.requires_grad], lr=5e-3)
    tokens = torch.from_numpy(TOKENS)
    for _ in range(4):
        logits = module(input_ids=tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), torch.from_numpy(labels).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert session.step(TOKENS, labels)["loss"] == pytest.approx(loss.item(), rel=rel)


@pytest.mark.parametrize("adapter", [LoRA, DoRA])
def test_bert_with_a_new_head(adapter, tmp_path):
    bundle = edgeopt.export(
        Logits(bert()),
        torch.from_numpy(TOKENS),
        loss="cross_entropy",
        optimizer=AdamW(5e-3),
        adapters=adapter(8, 16.0, ("query", "value")),
        trainable="model.classifier.*",
        verbose=False,
    )
    assert "checked" in {decision.kind for decision in bundle.decisions}
    session = bundle.session()
    assert len(bundle.manifest.adapters[0].tensors) == (8 if adapter is LoRA else 12) + 2
    settings = {"r": 8, "lora_alpha": 16, "target_modules": ["query", "value"], "use_dora": adapter is DoRA}
    steps(adapted(bert(), session, **settings, modules_to_save=["classifier"]), session, LABELS)
    plain = np.asarray(session.predict(TOKENS))
    session.export_inference(tmp_path / "model.onnx")
    inference = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(inference.run(None, {"tokens": TOKENS})[0], plain, rtol=1e-5, atol=1e-5)


def test_gpt2_whose_weights_lie_the_other_way_round(tmp_path):
    bundle = edgeopt.export(
        Logits(gpt2()),
        torch.from_numpy(TOKENS),
        loss=CrossEntropy(class_axis=-1),
        optimizer=AdamW(5e-3),
        adapters=LoRA(4, 8.0, ("c_attn", "c_fc", "attn.c_proj")),
        verbose=False,
    )
    assert "checked" in {decision.kind for decision in bundle.decisions}
    session = bundle.session()
    labels = np.roll(TOKENS, -1, axis=1)
    targets = ["c_attn", "c_fc", "attn.c_proj"]
    module = adapted(gpt2(), session, r=4, lora_alpha=8, target_modules=targets, fan_in_fan_out=True)
    steps(module, session, labels)
    assert bundle.manifest.adapters[0].config["fan_in_fan_out"] is True
    plain = np.asarray(session.predict(TOKENS))
    session.export_inference(tmp_path / "model.onnx")
    inference = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(inference.run(None, {"tokens": TOKENS})[0], plain, rtol=1e-5, atol=1e-5)


def test_a_tied_weight_has_an_adapter_where_the_module_is_meant():
    """GPT-2's embedding is its output layer; PEFT adapts one of the two modules."""
    bundle = edgeopt.export(
        Logits(gpt2()),
        torch.from_numpy(TOKENS),
        loss=CrossEntropy(class_axis=-1),
        optimizer=AdamW(5e-3),
        adapters=LoRA(4, 8.0, "wte"),
        verbose=False,
    )
    session = bundle.session()
    module = adapted(gpt2(), session, r=4, lora_alpha=8, target_modules=["wte"])
    steps(module, session, np.roll(TOKENS, -1, axis=1))


@pytest.mark.parametrize("dynamo", [True, False])
def test_the_same_from_an_onnx_file(dynamo, tmp_path):
    """As people find them: written by torch for inference, with weights transposed and nameless."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names: Any = {"input_names": ["tokens"], "output_names": ["logits"], "verbose": False}
        inputs = (torch.from_numpy(TOKENS),)
        torch.onnx.export(Logits(bert()), inputs, tmp_path / "bert.onnx", dynamo=dynamo, **names)
    settings: dict[str, Any] = {
        "loss": CrossEntropy(),
        "optimizer": AdamW(5e-3),
        "adapters": LoRA(8, 16.0, ("query", "value")),
        "trainable": "model.classifier.*",
        "verbose": False,
    }
    from_file = edgeopt.export(tmp_path / "bert.onnx", **settings).session()
    from_module = edgeopt.export(Logits(bert()), torch.from_numpy(TOKENS), **settings).session()
    names = {spec.name for spec in from_module.manifest.tensors if spec.trainable}
    assert {spec.name for spec in from_file.manifest.tensors if spec.trainable} == names
    from_module.save_adapters(tmp_path / "adapter")
    from_file.load_adapters(tmp_path / "adapter")
    for _ in range(3):
        losses = [session.step(TOKENS, LABELS)["loss"] for session in (from_file, from_module)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    from_file.save_adapters(tmp_path / "adapter")
    module = peft.PeftModel.from_pretrained(Logits(bert()), tmp_path / "adapter").eval()
    expected = module(inputs[0]).detach().numpy()
    np.testing.assert_allclose(np.asarray(from_file.predict(TOKENS)), expected, rtol=1e-5, atol=1e-5)


def quantized_file() -> onnx.ModelProto:
    """Two products, of which the weight of the first is int8 and scaled by row, as quantizers for the web write it."""
    random = np.random.default_rng(0)
    weight = random.standard_normal((6, 8)).astype(np.float32)
    scale = np.abs(weight).max(0) / 127
    arrays = {
        "first_quantized": np.round(weight / scale).astype(np.int8),
        "scale": scale,
        "second": random.standard_normal((8, 3)).astype(np.float32),
    }
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> agraph (float[n, 6] x) => (float[n, 3] z) {
            wide = Cast<to: int = 1>(first_quantized)
            w = Mul(wide, scale)
            y = MatMul(x, w)
            r = Relu(y)
            z = MatMul(r, second)
        }"""
    )
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return model


@pytest.mark.parametrize("adapter", [LoRA(4), DoRA(4), IA3()])
def test_a_weight_of_few_bits_has_an_adapter_too(adapter, tmp_path):
    model = quantized_file()
    session = edgeopt.export(
        model, loss="cross_entropy", optimizer=AdamW(5e-2), adapters=adapter, verbose=False
    ).session()
    x = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
    plain = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(np.asarray(session.predict(x)), plain.run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)
    losses = [session.step(x, np.array([0, 1, 2, 0]))["loss"] for _ in range(10)]
    assert losses[-1] < losses[0]
    session.export_inference(tmp_path / "model.onnx")
    merged = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(merged.run(None, {"x": x})[0], np.asarray(session.predict(x)), rtol=1e-5, atol=1e-5)
