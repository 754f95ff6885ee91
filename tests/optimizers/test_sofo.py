"""SOFO with directions and sketch given, against the equations, solved by the singular values as the authors do."""

from __future__ import annotations

from functools import partial

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import SOFO, GroupArrays
from edgeopt.optimizers.arithmetic.matrices import largest_eigenvalue


def sofo(theta, grads, *, tangents, sketch, lr, damping):
    for _, v, both in zip(grads, tangents, sketch, strict=True):
        count = len(v)
        rows = v.reshape(count, -1)
        length = np.linalg.norm(rows, axis=1)
        u, s, _ = np.linalg.svd(both[:, :count] / np.outer(length, length))
        coefficients = u @ (u.T @ (both[:, count] / length) / (s + damping * s.max()))
        theta = theta - lr * ((coefficients / length) @ rows).reshape(theta.shape)
    return theta


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        (SOFO(0.01, tangents=6, damping=1e-2), {"lr": 0.01, "damping": 1e-2}),
        (SOFO(0.02, tangents=3), {"lr": 0.02, "damping": 1e-5}),
    ],
    ids=["damped", "default"],
)
def test_follows_the_equations(rule, settings, assert_follows):
    # The sketch comes in the dtype of the parameter, so that its rounding counts 1/damping times.
    assert_follows(rule, partial(sofo, **settings), [(6, 4), (3, 2, 2)], float64=1e-9, float32=1e-3, smallest=0.1)


def test_all_parameters_of_a_group_share_the_directions(xp):
    """Two parameters move as one that holds both."""
    rng = np.random.default_rng(0)
    rule = SOFO(0.1, tangents=4, damping=1e-3)
    flat, tangents = rng.normal(size=6), rng.normal(size=(4, 6))
    bend = rng.normal(size=(6, 6))
    sketch = np.concatenate([tangents @ bend @ bend.T @ tangents.T, tangents @ rng.normal(size=(6, 1))], axis=1)
    hyper = {"lr": xp.asarray(0.1), "damping": xp.asarray(1e-3)}
    whole, _ = rule.update(
        xp,
        xp.asarray(flat),
        xp.asarray(flat),
        {"tangents": xp.asarray(tangents), "sketch": xp.asarray(sketch)},
        hyper,
        xp.asarray(1),
    )
    params = {"a": xp.asarray(flat[:4].reshape(2, 2)), "b": xp.asarray(flat[4:])}
    states = {
        "a": {"tangents": xp.asarray(tangents[:, :4].reshape(4, 2, 2))},
        "b": {"tangents": xp.asarray(tangents[:, 4:])},
    }
    group = GroupArrays(params, params, states, {"sketch": xp.asarray(sketch)})
    moved, _, _ = rule.update_all(xp, group, hyper, xp.asarray(1))
    np.testing.assert_allclose(
        np.concatenate([np.asarray(moved["a"]).reshape(-1), np.asarray(moved["b"])]), np.asarray(whole), rtol=1e-12
    )


@given(st.integers(1, 6), st.integers(0, 2**31), st.floats(-8, 8))
def test_the_largest_eigenvalue(size, seed, magnitude):
    factor = np.random.default_rng(seed).normal(size=(size, size + 1)) * 10.0**magnitude
    matrix = factor @ factor.T
    found = largest_eigenvalue(numpy_namespace, matrix)
    np.testing.assert_allclose(found, np.linalg.eigvalsh(matrix)[-1], rtol=1e-3)


def test_no_curvature_has_the_eigenvalue_zero():
    assert largest_eigenvalue(numpy_namespace, np.zeros((3, 3))) == 0.0


@pytest.mark.parametrize(("settings", "word"), [({"tangents": 0}, "tangents"), ({"damping": 0.0}, "damping")])
def test_impossible_settings_are_refused(settings, word):
    with pytest.raises(ConfigurationError, match=word):
        SOFO(**settings)
