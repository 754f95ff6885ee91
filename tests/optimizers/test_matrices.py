"""Linear algebra of matrix products, against factorisations."""

from __future__ import annotations

import numpy as np
import pytest

from edgeopt.optimizers.arithmetic.matrices import along_axis, eigen, inverse_root, orthonormal


def symmetric(size, condition, seed=0):
    q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))
    return (q * np.logspace(0, -np.log10(condition), size)) @ q.T


@pytest.mark.parametrize("root", [1, 2, 4, 6])
@pytest.mark.parametrize("size", [1, 2, 9])
def test_inverse_root(size, root, xp):
    matrix = symmetric(size, 1e6)
    values, vectors = np.linalg.eigh(matrix)
    expected = (vectors * values ** (-1 / root)) @ vectors.T
    found = np.asarray(inverse_root(xp, xp.asarray(matrix), root))
    np.testing.assert_allclose(found, expected, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 12])
def test_eigenvalues_and_vectors(size, xp):
    matrix = symmetric(size, 1e8)
    values, vectors = (np.asarray(found) for found in eigen(xp, xp.asarray(matrix)))
    np.testing.assert_allclose((vectors * values) @ vectors.T, matrix, atol=1e-14)
    np.testing.assert_allclose(np.sort(values)[-size:], np.linalg.eigvalsh(matrix), atol=1e-14)


@pytest.mark.parametrize("shape", [(6, 6), (7, 3)], ids=str)
def test_orthonormal_columns(shape, xp):
    matrix = np.random.default_rng(0).normal(size=shape) * np.logspace(0, -9, shape[1])
    q, r = np.linalg.qr(matrix)
    np.testing.assert_allclose(np.asarray(orthonormal(xp, xp.asarray(matrix))), q * np.sign(np.diag(r)), atol=1e-13)


def test_a_matrix_along_an_axis(xp):
    rng = np.random.default_rng(0)
    tensor = rng.normal(size=(2, 3, 4))
    for axis, size in enumerate(tensor.shape):
        matrix = rng.normal(size=(size, size))
        expected = np.moveaxis(np.tensordot(matrix, tensor, (1, axis)), 0, axis)
        found = np.asarray(along_axis(xp, xp.asarray(matrix), xp.asarray(tensor), axis))
        np.testing.assert_allclose(found, expected, atol=1e-14)
