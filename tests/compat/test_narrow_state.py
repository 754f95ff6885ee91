"""Optimizers of bitsandbytes and torchao, given as they are, and their state in and out of bundles.

Neither is needed: stand-ins have what is read of them. What the packages themselves make is among the goldens of
`tests/quantization/reference`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.compat.torch import load_torch_state, torch_state
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import SGD, Adam, AdamW, AdEMAMix, Lion, Optimizer, RMSprop, from_config
from edgeopt.quantization import FORMATS, Codebook
from edgeopt_runtime import StateError

SIGNED, UNSIGNED = (form for form in FORMATS["int8_dynamic"] if isinstance(form, Codebook))
NAMES = ["0.weight", "0.bias", "2.weight", "2.bias"]


class _Foreign(torch.optim.Optimizer):
    """Keeps what it is told."""


def bitsandbytes(params: Any, formula: str, bits: int = 8, smallest: int = 4096, **group: Any) -> Any:
    """As bitsandbytes.optim's classes are."""
    kind = type("Any8bit", (_Foreign,), {"__module__": "bitsandbytes.optim.any"})
    defaults = {"lr": 1e-3, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}
    optimizer: Any = kind(params, {**defaults, "alpha": 0.0, "t_alpha": None, "t_beta3": None, **group})
    optimizer.optimizer_name = formula
    optimizer.args = SimpleNamespace(optim_bits=bits, min_8bit_size=smallest, max_unorm=0.0, skip_zeros=False)
    optimizer.mng = SimpleNamespace(pid2config={}, index2config={})
    optimizer.name2qmap = {"dynamic": torch.tensor(SIGNED.table), "udynamic": torch.tensor(UNSIGNED.table)}
    return optimizer


def torchao(params: Any, name: str, **settings: Any) -> Any:
    """As torchao.optim's classes are."""
    kind = type(name, (_Foreign,), {"__module__": "torchao.optim.adam"})
    defaults = {"lr": torch.tensor(1e-3), "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1, "amsgrad": False}
    optimizer: Any = kind(params, defaults)
    given = {"block_size": 128 if "4" in name else 256, "bf16_stochastic_round": False, "is_adamw": "W" in name}
    for key, value in {**given, **settings}.items():
        setattr(optimizer, key, value)
    return optimizer


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 64))


COMMON: dict[str, Any] = {"lr": 1e-3, "weight_decay": 0.1}


@pytest.mark.parametrize(
    ("formula", "equal"),
    [
        ("adam", AdamW(beta2=0.99, **COMMON)),
        ("lion", Lion(**COMMON)),
        ("momentum", SGD(momentum=0.9, **COMMON)),
        ("rmsprop", RMSprop(alpha=0.9, **COMMON)),
    ],
)
def test_an_optimizer_of_bitsandbytes_is_taken_over_whole(model, formula, equal: Optimizer):
    assert from_config(bitsandbytes(model.parameters(), formula)) == edgeopt.optimizers.QuantizedState(
        equal, "int8_dynamic"
    )
    assert from_config(bitsandbytes(model.parameters(), formula, bits=32)) == equal


def test_its_groups_and_settings_are_taken_over(model):
    mixed = bitsandbytes(model.parameters(), "ademamix", betas=(0.9, 0.99, 0.999), alpha=4.0, t_alpha=9, t_beta3=9)
    equal = AdEMAMix(beta2=0.99, beta3=0.999, alpha=4.0, t_alpha_beta3=9.0, **COMMON)
    assert from_config(mixed).inner == equal  # type: ignore[union-attr]  # one rule for all
    groups = [{"params": [model[0].weight]}, {"params": [*model[2].parameters()], "weight_decay": 0.0}]
    bundle = edgeopt.export(
        model, torch.zeros(2, 64), loss="mse", optimizer=bitsandbytes(groups, "adam", smallest=64), verbose=False
    )
    slots = {spec.name for spec in bundle.manifest.tensors if spec.role == "optimizer"}
    assert "optimizer.exp_avg__int8_dynamic__codes.2.bias" in slots
    assert not any("0.bias" in slot for slot in slots)
    assert {spec.default for spec in bundle.manifest.hyperparameters if "weight_decay" in spec.name} == {0.1}


@pytest.mark.parametrize(
    ("name", "equal"),
    [
        ("Adam8bit", Adam(beta2=0.99, state="int8_dynamic", **COMMON)),
        ("AdamW4bit", AdamW(beta2=0.99, state="int4", **COMMON)),
        ("AdamWFp8", AdamW(beta2=0.99, state="fp8_e4m3", **COMMON)),
    ],
)
def test_an_optimizer_of_torchao_is_taken_over_whole(model, name, equal: Any):
    found: Any = from_config(torchao(model.parameters(), name))
    assert found.state == equal.state
    assert type(found.inner) is type(equal.inner)
    assert found.inner.lr == pytest.approx(1e-3)


def test_what_has_no_equal_is_refused(model):
    for wrong, word in (
        (bitsandbytes(model.parameters(), "lamb"), "trust ratio"),
        (bitsandbytes(model.parameters(), "ademamix", betas=(0.9, 0.99, 0.999), t_alpha=3), "t_alpha"),
        (torchao(model.parameters(), "AdamW8bit", block_size=128), "blocks"),
        (torchao(model.parameters(), "AdamW8bit", bf16_stochastic_round=True), "random"),
        (torchao(model.parameters(), "CPUOffloadOptimizer"), "AdamW8bit"),
    ):
        with pytest.raises(ConfigurationError, match=word):
            from_config(wrong)
    own = bitsandbytes(model.parameters(), "adam")
    own.mng.pid2config[id(model[0].weight)] = {"optim_bits": 32}
    with pytest.raises(ConfigurationError, match=r"embedding\.\*"):
        from_config(own)


@pytest.fixture
def trained(model) -> edgeopt.Bundle:
    """With state in the format of bitsandbytes, after some steps."""
    x = torch.randn(8, 64)
    bundle = edgeopt.export(model, x, loss="mse", optimizer=AdamW(1e-3, state="int8_dynamic"), verbose=False)
    session = bundle.session()
    for _ in range(5):
        session.step([x.numpy(), np.tanh(x.numpy()[:, ::-1]).copy()])
    return edgeopt.Bundle(bundle.manifest, bundle.graphs, session.state())


def test_state_of_bitsandbytes_goes_out_and_in_bit_for_bit(trained, model):
    optimizer = bitsandbytes(model.parameters(), "adam")
    state = torch_state(trained, optimizer, NAMES)
    weight, bias = state["state"][0], state["state"][1]
    assert weight["state1"].dtype == torch.uint8
    assert weight["absmax2"].shape == (24,)
    assert weight["step"] == 5
    assert bias["state1"].dtype == torch.float32
    assert "absmax1" not in bias
    fresh = edgeopt.Bundle(trained.manifest, trained.graphs, {n: np.zeros_like(a) for n, a in trained.state.items()})
    fresh = edgeopt.Bundle(fresh.manifest, fresh.graphs, {**fresh.state, **weights(trained)})
    # Newer versions hide their tensors from FSDP.
    wrapped = {
        place: {"step": 5, "__bnb_optimizer_quant_state__": {k: v for k, v in each.items() if k != "step"}}
        for place, each in state["state"].items()
    }
    for entries in (state["state"], wrapped):
        again = load_torch_state(fresh, {**state, "state": entries}, NAMES)
        for name, array in trained.state.items():
            if name.startswith("optimizer."):
                np.testing.assert_array_equal(again.state[name], array, err_msg=name)


def weights(bundle: edgeopt.Bundle) -> dict[str, np.ndarray]:
    return {spec.name: bundle.state[spec.name] for spec in bundle.manifest.tensors if spec.role == "parameter"}


@pytest.mark.parametrize("state", [None, "int8", "int4", "bf16"])
def test_state_in_one_format_is_loaded_into_another(trained, model, state):
    """By way of PyTorch's own optimizer, which keeps float32, and directly."""
    target = edgeopt.export(model, torch.zeros(8, 64), loss="mse", optimizer=AdamW(1e-3, state=state), verbose=False)
    plain = torch_state(trained, torch.optim.AdamW(model.parameters()), NAMES)
    narrow = torch_state(trained, bitsandbytes(model.parameters(), "adam"), NAMES)
    one, other = (load_torch_state(target, entries, NAMES) for entries in (plain, narrow))
    for name, array in one.state.items():
        np.testing.assert_array_equal(other.state[name], array, err_msg=name)
    back = torch_state(one, torch.optim.AdamW(model.parameters()), NAMES)["state"][0]
    largest = plain["state"][0]["exp_avg"].abs().max()
    assert (back["exp_avg"] - plain["state"][0]["exp_avg"]).abs().max() <= 0.15 * largest
    one.session().step([np.zeros((8, 64), np.float32), np.zeros((8, 64), np.float32)])


def test_state_that_is_not_ours_is_refused(trained, model):
    state = torch_state(trained, bitsandbytes(model.parameters(), "adam"), NAMES)
    state["state"][0]["qmap1"] = torch.linspace(-1, 1, 256)
    with pytest.raises(StateError, match="qmap1"):
        load_torch_state(trained, state, NAMES)
    alone = {name: array for name, array in trained.state.items() if name.startswith("optimizer.")}
    with pytest.raises(StateError, match="parameter"):
        load_torch_state(alone, torch_state(trained, bitsandbytes(model.parameters(), "adam"), NAMES), NAMES)
