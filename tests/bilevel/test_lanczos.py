from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeopt.bilevel.hypergradient import LinearSystem
from edgeopt.bilevel.lanczos import Lanczos
from edgeopt_runtime.errors import NonFiniteLossError


def matrix_of(seed: int, size: int, *, condition: float, definite: bool = True) -> np.ndarray:
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((size, size)))
    eigenvalues = np.geomspace(1.0, condition, size)
    signs = 1.0 if definite else rng.choice([-1.0, 1.0], size)
    return basis @ np.diag(signs * eigenvalues) @ basis.T


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 12), st.sampled_from([1.5, 1e2, 1e5]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_vectors_are_orthonormal_and_make_the_matrix_tridiagonal(seed, size, most, condition, definite):
    a = matrix_of(seed, size, condition=condition, definite=definite)
    start = np.random.default_rng(seed + 1).standard_normal(size)
    subspace = Lanczos(start, most)
    while not subspace.closed:
        subspace.extend(lambda vector: a @ vector)
    q, t = subspace.basis, subspace.tridiagonal
    assert q.shape == (size, subspace.size)
    assert subspace.size <= min(size, most)
    np.testing.assert_allclose(q.T @ q, np.eye(subspace.size), atol=1e-13)
    np.testing.assert_allclose(q.T @ a @ q, t, atol=1e-12 * condition)
    np.testing.assert_allclose(q[:, 0], start / np.linalg.norm(start), rtol=1e-14)
    np.testing.assert_array_equal(t, np.triu(np.tril(t, 1), -1))


@given(st.integers(0, 10**6), st.integers(1, 8))
@settings(max_examples=30, deadline=None)
def test_a_full_subspace_solves_exactly(seed, size):
    a = matrix_of(seed, size, condition=50.0)
    b = np.random.default_rng(seed + 1).standard_normal(size)
    system = LinearSystem(np.zeros(size), correct_residual=True, reorthogonalize=True)
    for _ in range(size):
        system.update(lambda vector: a @ vector, b, most=size)
    np.testing.assert_allclose(system.v, np.linalg.solve(a, b), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 12])
def test_the_residual_is_known_without_a_product_and_falls_from_one_subspace_to_the_next(most):
    a = matrix_of(3, 12, condition=20.0)
    b = np.random.default_rng(4).standard_normal(12)
    system = LinearSystem(np.zeros(12), correct_residual=True, reorthogonalize=True)
    ends, products = [float(np.linalg.norm(b))], 0
    for count in range(1, 12 * most + 1):

        def apply(vector):
            nonlocal products
            products += 1
            return a @ vector

        estimate = system.update(apply, b, most)
        np.testing.assert_allclose(estimate, np.linalg.norm(b - a @ system.v), rtol=1e-6, atol=1e-12)
        if count % most == 0:
            ends.append(estimate)
    # One product an update, and one for each subspace but the first.
    assert products <= 12 * most + 11
    assert ends[-1] < 0.2 * ends[0]
    assert ends[-1] < ends[1] or most == 12


def test_a_right_hand_side_that_moves_is_followed():
    a = matrix_of(5, 6, condition=5.0)
    b = np.random.default_rng(6).standard_normal((6, 6))
    system = LinearSystem(np.zeros(6), correct_residual=True, reorthogonalize=True)
    for moved in b:
        residual = system.update(lambda vector: a @ vector, moved, most=10)
        np.testing.assert_allclose(residual, np.linalg.norm(moved - a @ system.v), rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(system.v, np.linalg.solve(a, b[-1]), rtol=1e-10)


def test_an_invariant_subspace_ends_early_and_the_next_one_goes_on():
    a = np.diag([2.0, 2.0, 5.0])
    subspace = Lanczos(np.array([1.0, 1.0, 0.0]), 3)
    subspace.extend(lambda vector: a @ vector)
    assert subspace.closed
    assert subspace.size == 1
    system = LinearSystem(np.zeros(3), correct_residual=True, reorthogonalize=True)
    assert system.update(lambda vector: a @ vector, np.array([1.0, 1.0, 0.0]), most=3) < 1e-15
    assert system.update(lambda vector: a @ vector, np.array([1.0, 1.0, 10.0]), most=3) < 1e-14
    np.testing.assert_allclose(system.v, [0.5, 0.5, 2.0], rtol=1e-14)


def test_a_system_that_is_solved_already_stays_so():
    system = LinearSystem(np.array([3.0, 1.0]), correct_residual=True, reorthogonalize=True)
    for _ in range(3):
        assert system.update(lambda vector: 2.0 * vector, np.array([6.0, 2.0]), most=2) == 0.0
    np.testing.assert_array_equal(system.v, [3.0, 1.0])
    assert system.size == 0
    zero = LinearSystem(np.zeros(2), correct_residual=True, reorthogonalize=True)
    assert zero.update(lambda vector: vector, np.zeros(2), most=2) == 0.0


def test_without_correction_a_subspace_makes_all_of_the_solution():
    a = matrix_of(7, 6, condition=10.0)
    b = np.random.default_rng(8).standard_normal(6)
    system = LinearSystem(np.full(6, 100.0), correct_residual=False, reorthogonalize=True)
    system.update(lambda vector: a @ vector, b, most=2)
    np.testing.assert_allclose(system.v, b * (b @ b) / (b @ a @ b), rtol=1e-12)


def test_a_lower_level_without_curvature_is_refused():
    system = LinearSystem(np.zeros(2), correct_residual=True, reorthogonalize=True)
    with pytest.raises(NonFiniteLossError, match=r"singular.*penalty"):
        system.update(np.zeros_like, np.ones(2), most=2)
