"""Rules as gradient transformations: on trees of numpy arrays, on JAX's arrays, under jit, in chains of optax."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from edgeopt.compat.optax import gradient_transformation
from edgeopt.compat.trees import flatten, unflatten
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import OPTIMIZERS, SGD, AdamW, Lookahead, from_config
from edgeopt.schedules import WarmupCosine

KINDS: dict[str, dict[str, Any]] = {
    "adamw": {"learning_rate": 0.01},
    "lion": {"learning_rate": 0.01},
    "sgd": {"learning_rate": 0.1, "momentum": 0.9},
}


@pytest.fixture
def double() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


class Layer(NamedTuple):
    weight: Any
    bias: Any


def tree(seed: int = 0, dtype: Any = np.float64) -> dict[str, Any]:
    rng = np.random.default_rng(seed)

    def array(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(dtype)

    return {"second": [array(3), array(2, 2)], "first": Layer(array(4, 3), array()), "none": None}


def run(transformation: Any, params: Any, steps: int, jit: bool = False) -> Any:
    state = transformation.init(params)
    update = jax.jit(transformation.update) if jit else transformation.update
    for step in range(steps):
        grads = jax.tree_util.tree_map(lambda leaf, like: leaf.astype(like.dtype), tree(step + 1), params)
        updates, state = update(grads, state, params)
        params = jax.tree_util.tree_map(lambda param, change: param + change, params, updates)
    return params


def assert_close(one: Any, other: Any, tolerance: float) -> None:
    jax.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), one, other)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("form", ["numpy", "jax", "jit"])
def test_trees_are_trained_as_by_optax(form: str, name: str, double: None) -> None:
    rule = from_config({"name": name, "kwargs": KINDS[name]})
    params = tree() if form == "numpy" else jax.tree_util.tree_map(jnp.asarray, tree())
    trained = run(gradient_transformation(rule), params, 6, jit=form == "jit")  # type: ignore[arg-type] # a rule
    expected = run(getattr(optax, name)(**KINDS[name]), jax.tree_util.tree_map(jnp.asarray, tree()), 6)
    assert_close(trained, expected, 1e-12)
    assert isinstance(trained["first"], Layer)
    assert isinstance(trained["first"].weight, np.ndarray if form == "numpy" else jax.Array)


def test_without_64_bits_jax_computes_in_float32_and_does_not_warn() -> None:
    params = jax.tree_util.tree_map(jnp.asarray, tree(dtype=np.float32))
    trained = run(gradient_transformation(AdamW(WarmupCosine(0.01, 2, 10))), params, 6, jit=True)
    expected = run(gradient_transformation(AdamW(WarmupCosine(0.01, 2, 10))), tree(), 6)
    assert trained["first"].weight.dtype == jnp.float32
    assert_close(trained, expected, 1e-5)


def test_it_is_a_link_of_a_chain(double: None) -> None:
    params = jax.tree_util.tree_map(jnp.asarray, tree())
    clip = optax.clip_by_global_norm(0.5)
    mine = optax.chain(clip, optax.GradientTransformation(*gradient_transformation(SGD(0.1))))
    assert_close(run(mine, params, 4), run(optax.chain(clip, optax.sgd(0.1)), params, 4), 1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_rule_runs_under_jit_as_it_does_in_numpy(name: str, double: None) -> None:
    rule = OPTIMIZERS[name]()
    if rule.ingredients(np.zeros((2, 2))) or rule.shared_ingredients({"w": np.zeros((2, 2))}):
        with pytest.raises(ConfigurationError, match="needs more than gradients"):
            gradient_transformation(rule).init(tree())
        return
    # Compiling takes longer than anything else, and with it the number of parameters.
    transformation = gradient_transformation(rule)

    def trained(xp: Any, update: Any) -> dict[str, Any]:
        params = {"w": xp.asarray(tree()["first"].weight), "b": xp.asarray(tree()["second"][0])}
        state = transformation.init(params)
        for _ in range(3):
            updates, state = update({"w": xp.ones((4, 3)), "b": xp.ones(3)}, state, params)
            params = {name: params[name] + updates[name] for name in params}
        return params

    assert_close(trained(jnp, jax.jit(transformation.update)), trained(np, transformation.update), 1e-9)


def test_wrappers_keep_their_own_slots() -> None:
    start = {"w": np.array([1.0, 2.0])}
    transformation = gradient_transformation(Lookahead(SGD(0.1), k=2, alpha=0.5))
    state, params = transformation.init(start), start
    for _ in range(2):
        updates, state = transformation.update({"w": np.ones(2)}, state, params)
        params = {"w": params["w"] + updates["w"]}
    np.testing.assert_allclose(params["w"], [0.9, 1.9])
    assert state.count == 2
    assert set(state.slots[0]) == {"slow_param"}


def test_parameters_must_be_given() -> None:
    transformation = gradient_transformation(SGD(0.1))
    with pytest.raises(ConfigurationError, match="params"):
        transformation.update({"w": np.ones(2)}, transformation.init({"w": np.ones(2)}), None)
    with pytest.raises(ConfigurationError, match="no parameter"):
        transformation.init({})


def test_jax_need_not_be_there() -> None:
    """The same in a process without JAX, whose trees are our own."""
    code = """
import sys
sys.modules["jax"] = None
del sys.modules["jax"]
import numpy as np
from edgeopt.compat.optax import gradient_transformation
from edgeopt.optimizers import SGD
t = gradient_transformation(SGD(0.5, momentum=0.5))
params = {"b": [np.ones(2)], "a": (np.zeros(3), None)}
state = t.init(params)
for _ in range(2):
    updates, state = t.update({"b": [np.ones(2)], "a": (np.ones(3), None)}, state, params)
assert updates["a"][1] is None and isinstance(updates["a"], tuple)
assert (updates["b"][0] == -0.75).all() and (updates["a"][0] == -0.75).all()
assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_our_trees_are_those_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves, _ = flatten(tree())
    monkeypatch.delitem(sys.modules, "jax")
    own, structure = flatten(tree())
    assert len(own) == len(leaves) == 4
    assert all(np.array_equal(a, b) for a, b in zip(own, leaves, strict=True))
    again = unflatten(structure, own)
    assert again["none"] is None
    assert isinstance(again["first"], Layer)
    assert again["second"][1] is own[3]
