"""Rules that precondition with matrices, against factorisations in float64."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import SOAP, Adam, Shampoo


def along(matrix, tensor, axis):
    return np.moveaxis(np.tensordot(matrix, tensor, (1, axis)), 0, axis)


def unfold(tensor, axis):
    return np.moveaxis(tensor, axis, 0).reshape(tensor.shape[axis], -1)


def shampoo(theta, grads, *, lr, momentum=0.0, eps=1e-6, every=1, most=256, decay=0.0):
    shape, order = theta.shape, 2 * theta.ndim
    statistics = [eps * np.eye(size) for size in shape]
    roots, buffer = list(statistics), None
    for t, g in enumerate(grads):
        g = g + decay * theta
        g = g if buffer is None else (1 - momentum) * g + momentum * buffer
        buffer = g
        for axis, size in enumerate(shape):
            rows = unfold(g, axis)
            statistics[axis] = statistics[axis] + rows @ rows.T
            if t % every == 0:
                kept = statistics[axis] if size <= most else np.diag(np.diag(statistics[axis]))
                values, vectors = np.linalg.eigh(kept)
                roots[axis] = (vectors * values ** (-1 / order)) @ vectors.T
            buffer = along(roots[axis], buffer, axis)
        theta = theta - lr * buffer
    return theta


def regular(h):
    return h + 1e-6 * np.trace(h) / len(h) * np.eye(len(h))


def soap(theta, grads, *, lr, b1=0.95, b2=0.95, beta=0.95, eps=1e-8, decay=0.01, every=10, vectors=False):
    axes = range(theta.ndim) if theta.ndim > 1 or vectors else ()
    m = v = np.zeros_like(theta)
    for k, g in enumerate(grads):
        outer = {axis: unfold(g, axis) @ unfold(g, axis).T for axis in axes}
        if k == 0:
            h = {axis: (1 - beta) * outer[axis] for axis in axes}
            q = {axis: np.eye(theta.shape[axis]) for axis in axes}
            for axis in axes:
                for _ in range(10):
                    q[axis] = np.linalg.qr(regular(h[axis]) @ q[axis])[0]
            continue

        def turned(x, back=False, q=q):
            for axis in axes:
                x = along(q[axis] if back else q[axis].T, x, axis)
            return x

        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * turned(g) ** 2
        u = turned(turned(m) / (np.sqrt(v) + eps), back=True)
        theta = (theta - lr * np.sqrt(1 - b2**k) / (1 - b1**k) * u) * (1 - lr * decay)
        h = {axis: beta * h[axis] + (1 - beta) * outer[axis] for axis in axes}
        for axis in axes if k % every == 0 else ():
            product = regular(h[axis]) @ q[axis]
            order = np.argsort(-np.sum(q[axis] * product, axis=0))
            v = np.take(v, order, axis)
            q[axis] = np.linalg.qr(product[:, order])[0]
    return theta


CASES = {
    "shampoo": (Shampoo(0.01), partial(shampoo, lr=0.01)),
    "shampoo, other": (
        Shampoo(0.02, momentum=0.6, eps=1.0, every=4, weight_decay=0.1),
        partial(shampoo, lr=0.02, momentum=0.6, eps=1.0, every=4, decay=0.1),
    ),
    "shampoo, diagonal": (Shampoo(0.01, max_size=4), partial(shampoo, lr=0.01, most=4)),
}

SOAP_CASES = {
    "soap": (SOAP(0.01), partial(soap, lr=0.01)),
    "soap, other": (
        SOAP(0.02, beta1=0.6, beta2=0.9, shampoo_beta=0.8, eps=1e-4, precondition_frequency=3, precondition_1d=True),
        partial(soap, lr=0.02, b1=0.6, b2=0.9, beta=0.8, eps=1e-4, every=3, vectors=True),
    ),
}


@pytest.mark.parametrize(("rule", "reference"), CASES.values(), ids=CASES)
def test_follows_the_equations(rule, reference, assert_follows):
    assert_follows(rule, reference, [(6, 4), (3, 5), (5,), (2, 3, 4)], float64=1e-7, float32=1e-3, smallest=0.1)


@pytest.mark.parametrize(("rule", "reference"), SOAP_CASES.values(), ids=SOAP_CASES)
def test_soap_follows_the_equations(rule, reference, assert_follows):
    assert_follows(rule, reference, [(4, 4), (2, 3, 4)], float64=1e-7, float32=1e-3, smallest=0.1)


def test_soap_is_adam_where_nothing_is_rotated(train, xp, draws):
    start, grads = draws(6)
    rule = SOAP(0.01, beta1=0.9, beta2=0.99, max_precond_dim=0, weight_decay=0.0)
    param, _ = train(rule, xp, start, lambda _, i: grads[i], 6)
    expected, _ = train(Adam(0.01, beta1=0.9, beta2=0.99, eps_hat=True), xp, start, lambda _, i: grads[i + 1], 5)
    np.testing.assert_allclose(param, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Shampoo(every=0), "every"),
        (lambda: SOAP(precondition_frequency=0), "precondition_frequency"),
        (lambda: Shampoo(eps=0.0), "eps"),
        (lambda: Shampoo(momentum=1.0), "momentum"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()
