"""Adapters by themselves: written for PEFT and read from it, swapped in place, and refused where they do not fit."""

from __future__ import annotations

import json
import shutil
from functools import cache
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

import edgeopt
from edgeopt.adapters import IA3, DoRA, LoRA, from_peft
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import AdamW
from edgeopt_runtime.errors import AdapterError

peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install edgeopt[dev]")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 6)
        self.convolution = torch.nn.Conv2d(6, 8, (3, 1), padding=(1, 0))
        self.linear = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x):
        channels = self.embedding(x).transpose(1, 2).unsqueeze(3)
        inner = torch.tanh(self.convolution(channels)).mean((2, 3))
        return self.head(torch.tanh(self.linear(inner)))


INPUTS = torch.from_numpy(np.random.default_rng(1).integers(0, 11, (4, 9)))
LABELS = np.array([0, 2, 1, 1])
TARGETS = ("linear", "convolution")
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "lora": (LoRA(4, 6.0, ("embedding", *TARGETS)), {"r": 4, "lora_alpha": 6}),
    "dora": (DoRA(4, 6.0, ("embedding", *TARGETS)), {"r": 4, "lora_alpha": 6, "use_dora": True}),
    "rslora": (LoRA(4, 6.0, TARGETS, rank_stabilized=True), {"r": 4, "lora_alpha": 6, "use_rslora": True}),
    "ia3": (IA3(TARGETS, "linear"), {"feedforward_modules": ["linear"]}),
}


def model():
    torch.manual_seed(0)
    return Model()


@cache
def bundle_of(adapters, **settings):
    """Bundles are never changed, so that one export of each is enough."""
    return edgeopt.export(
        model(), INPUTS, loss="cross_entropy", optimizer=AdamW(1e-2), adapters=adapters, verbose=False, **settings
    )


def session_of(adapters, **settings):
    return bundle_of(adapters, **settings).session()


def trained(adapters, **settings):
    session = session_of(adapters, **settings)
    for _ in range(3):
        session.step(INPUTS.numpy(), LABELS)
    return session


def peft_predictions(module):
    return module.eval()(INPUTS).detach().numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_peft_loads_what_is_written_here(kind, tmp_path):
    session = trained(KINDS[kind][0])
    session.save_adapters(tmp_path / "adapter")
    module = peft.PeftModel.from_pretrained(model(), tmp_path / "adapter")
    np.testing.assert_allclose(session.predict(INPUTS.numpy()), peft_predictions(module), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_of_peft_trains_on_here_and_loads_back_there(kind, tmp_path):
    adapter, settings = KINDS[kind]
    make = peft.IA3Config if kind == "ia3" else peft.LoraConfig
    module = peft.get_peft_model(model(), make(target_modules=list(adapter.targets), **settings))
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter += 0.2 * torch.randn(parameter.shape)
    module.save_pretrained(tmp_path / "theirs")
    session = session_of(from_peft(tmp_path / "theirs"))
    session.load_adapters(tmp_path / "theirs")
    np.testing.assert_allclose(session.predict(INPUTS.numpy()), peft_predictions(module), rtol=1e-5, atol=1e-6)
    before = session.evaluate(INPUTS.numpy(), LABELS)["loss"]
    for _ in range(3):
        session.step(INPUTS.numpy(), LABELS)
    assert session.evaluate(INPUTS.numpy(), LABELS)["loss"] < before
    session.save_adapters(tmp_path / "ours")
    again = peft.PeftModel.from_pretrained(model(), tmp_path / "ours")
    np.testing.assert_allclose(session.predict(INPUTS.numpy()), peft_predictions(again), rtol=1e-5, atol=1e-6)
    keys = [
        safetensors.numpy.load_file(tmp_path / name / "adapter_model.safetensors").keys() for name in ("ours", "theirs")
    ]
    assert keys[0] == keys[1]


def test_a_head_that_trains_besides_is_a_module_to_save(tmp_path):
    session = trained(LoRA(4, 6.0, TARGETS), trainable="head.*")
    session.save_adapters(tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["modules_to_save"] == ["head"]
    module = peft.PeftModel.from_pretrained(model(), tmp_path)
    np.testing.assert_allclose(session.predict(INPUTS.numpy()), peft_predictions(module), rtol=1e-5, atol=1e-6)
    module.save_pretrained(tmp_path / "theirs")
    other = session_of(LoRA(4, 6.0, TARGETS), trainable="head.*")
    other.load_adapters(tmp_path / "theirs")
    np.testing.assert_array_equal(other.predict(INPUTS.numpy()), session.predict(INPUTS.numpy()))


def test_adapters_are_swapped_in_place(tmp_path):
    session = trained(LoRA(4, 6.0, TARGETS))
    session.save_adapters(tmp_path / "one")
    one = session.predict(INPUTS.numpy())
    session.step(INPUTS.numpy(), LABELS)
    two = session.predict(INPUTS.numpy())
    session.save_adapters(tmp_path / "two")
    session.load_adapters(tmp_path / "one")
    np.testing.assert_array_equal(session.predict(INPUTS.numpy()), one)
    session.load_adapters(tmp_path / "two" / "adapter_model.safetensors")
    np.testing.assert_array_equal(session.predict(INPUTS.numpy()), two)


def test_a_bundle_keeps_adapters_too(tmp_path):
    session = trained(LoRA(4, 6.0, TARGETS))
    session.save(tmp_path / "all.edgeopt")
    session.save_adapters(tmp_path / "one")
    bundle = edgeopt.Bundle.load(tmp_path / "all.edgeopt")
    bundle.save_adapters(tmp_path / "two")
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    fresh = session_of(LoRA(4, 6.0, TARGETS))
    fresh.save(tmp_path / "fresh.edgeopt")
    loaded = edgeopt.Bundle.load(tmp_path / "fresh.edgeopt").load_adapters(tmp_path / "one")
    np.testing.assert_array_equal(loaded.session().predict(INPUTS.numpy()), session.predict(INPUTS.numpy()))


def test_several_adapters_have_a_folder_each(tmp_path):
    adapters = (LoRA(4, targets="linear"), LoRA(2, targets="convolution"), IA3("head"))
    session = trained(adapters)
    session.save_adapters(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ia3", "lora", "lora_2"]
    other = session_of(adapters)
    other.load_adapters(tmp_path)
    np.testing.assert_array_equal(other.predict(INPUTS.numpy()), session.predict(INPUTS.numpy()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype, tmp_path):
    session = trained(LoRA(4, 6.0, TARGETS))
    session.save_adapters(tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    halves = {name: torch.from_numpy(array).to(dtype) for name, array in safetensors.numpy.load_file(file).items()}
    from safetensors.torch import save_file

    save_file(halves, file)
    session.load_adapters(tmp_path)
    for name, value in halves.items():
        own = session.parameters()[name.removeprefix("base_model.model.")]
        np.testing.assert_array_equal(own, value.float().numpy())


def changed(tmp_path, session, change):
    session.save_adapters(tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    arrays = safetensors.numpy.load_file(file)
    change(arrays)
    safetensors.numpy.save_file(arrays, file)


NAME = "base_model.model.linear.lora_A.weight"
REFUSED = {
    "missing": (lambda arrays: arrays.pop(NAME), "lacks `base_model.model.linear.lora_A.weight`"),
    "unknown": (lambda arrays: arrays.update(other=np.zeros(2, np.float32)), "has no `other`"),
    "shape": (lambda arrays: arrays.update({NAME: arrays[NAME][:2].copy()}), r"shape \[2, 8\]"),
    "float64": (lambda arrays: arrays.update({NAME: arrays[NAME].astype(np.float64)}), "without loss"),
    "int32": (lambda arrays: arrays.update({NAME: arrays[NAME].astype(np.int32)}), "without loss"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_files_that_do_not_fit_change_nothing(what, tmp_path):
    change, message = REFUSED[what]
    session = trained(LoRA(4, 6.0, TARGETS))
    changed(tmp_path, session, change)
    before = session.state()
    with pytest.raises(AdapterError, match=message):
        session.load_adapters(tmp_path)
    for name, array in session.state().items():
        np.testing.assert_array_equal(array, before[name])


def test_another_configuration_is_refused(tmp_path):
    trained(LoRA(4, 6.0, TARGETS)).save_adapters(tmp_path)
    with pytest.raises(AdapterError, match="lora_alpha is 6"):
        session_of(LoRA(4, 8.0, TARGETS)).load_adapters(tmp_path)
    with pytest.raises(AdapterError, match=r"use_dora is False.*use_dora|use_dora is False"):
        session_of(DoRA(4, 6.0, TARGETS)).load_adapters(tmp_path)


def test_without_files_or_adapters_there_is_an_error(tmp_path):
    session = session_of(LoRA(4, 6.0, TARGETS))
    with pytest.raises(AdapterError, match=r"There is no .*adapter_config\.json"):
        session.load_adapters(tmp_path)
    session.save_adapters(tmp_path)
    (tmp_path / "adapter_config.json").write_text("[1]")
    with pytest.raises(AdapterError, match="no configuration"):
        session.load_adapters(tmp_path)
    shutil.rmtree(tmp_path)
    (tmp_path / "adapter_config.json").parent.mkdir()
    plain = edgeopt.export(model(), INPUTS, loss="cross_entropy", optimizer=AdamW(1e-2), verbose=False).session()
    for call in (plain.save_adapters, plain.load_adapters):
        with pytest.raises(AdapterError, match="has no adapters"):
            call(tmp_path)


def test_a_configuration_of_peft_says_the_same():
    config = peft.LoraConfig(r=4, lora_alpha=6, target_modules=["linear", "convolution"], use_dora=True)
    assert from_peft(config) == DoRA(4, 6, ("convolution", "linear"))
    config = peft.IA3Config(target_modules=["linear"], feedforward_modules=["linear"])
    assert from_peft(config) == IA3(("linear",), ("linear",))


def test_settings_of_peft_without_an_equal_are_refused(tmp_path):
    config = {"peft_type": "LORA", "target_modules": ["linear"], "r": 4, "rank_pattern": {"linear": 2}}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigurationError, match="rank_pattern"):
        from_peft(tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "OFT", "target_modules": ["linear"]}))
    with pytest.raises(ConfigurationError, match="'OFT'"):
        from_peft(tmp_path)
