"""Rules for embeddings against torch with sparse gradients, and against rows trained one by one."""

from __future__ import annotations

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest
import torch

from edgeopt.optimizers import SGD, Adam, LazyAdam, SparseAdam, SparseSGD


def embedding(steps: int, rows: int = 8, width: int = 3):
    """Gradients that touch three of the rows at each step."""
    rng = np.random.default_rng(1)
    grads = np.zeros((steps, rows, width))
    for grad in grads:
        grad[rng.choice(rows, 3, replace=False)] = rng.normal(size=(3, width))
    return rng.normal(size=(rows, width)), grads


def torch_sparse(optimizer, start, grads, **settings):
    param = torch.nn.Parameter(torch.tensor(start))
    rule = optimizer([param], **settings)
    for grad in grads:
        rows = np.flatnonzero(np.any(grad != 0, axis=1))
        param.grad = torch.sparse_coo_tensor(
            torch.tensor(rows)[None], torch.tensor(grad[rows]), start.shape, check_invariants=True
        )
        rule.step()
    return param.detach().numpy(), rule.state[param]


@pytest.mark.parametrize("maximize", [False, True])
def test_sparse_adam_is_torchs(train, maximize):
    start, grads = embedding(25)
    rule = SparseAdam(0.1, beta1=0.8, beta2=0.95, eps=1e-3, maximize=maximize)
    ours, state = train(rule, numpy_namespace, start, lambda _, i: grads[i], 25)
    settings = {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3, "maximize": maximize}
    theirs, reference = torch_sparse(torch.optim.SparseAdam, start, grads, **settings)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)
    for slot in ("exp_avg", "exp_avg_sq"):
        np.testing.assert_allclose(state[slot], reference[slot].numpy(), rtol=1e-12, atol=1e-15)


def test_sparse_sgd_is_torchs_without_momentum(train):
    start, grads = embedding(25)
    ours, _ = train(SparseSGD(0.1), numpy_namespace, start, lambda _, i: grads[i], 25)
    np.testing.assert_allclose(ours, torch_sparse(torch.optim.SGD, start, grads, lr=0.1)[0], rtol=1e-12)


def test_momentum_of_a_row_sees_only_its_own_gradients(train):
    start, grads = embedding(25)
    rule = SparseSGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.1)
    ours, _ = train(rule, numpy_namespace, start, lambda _, i: grads[i], 25)
    for row in range(len(start)):
        own = [grad[row] for grad in grads if grad[row].any()]
        alone = SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.1)
        expected, _ = train(alone, numpy_namespace, start[row], lambda _, i, own=own: own[i], len(own))
        np.testing.assert_allclose(ours[row], expected, rtol=1e-12)


def test_on_onnx_runtime_they_do_the_same(train, train_onnx):
    start, grads = (array.astype(np.float32) for array in embedding(60))
    for rule in (SparseAdam(0.1), SparseSGD(0.1, momentum=0.9), LazyAdam(0.1)):
        expected, _ = train(rule, numpy_namespace, start, lambda _, i: grads[i], 60)
        np.testing.assert_allclose(train_onnx(rule, start, grads), expected, rtol=1e-4, atol=1e-5)


def test_elements_of_a_vector_are_rows(xp, train):
    start, grads = np.ones(3), np.array([[0.0, 1.0, -1.0], [2.0, 0.0, 0.0]])
    ours, state = train(SparseSGD(0.5, momentum=0.5), xp, start, lambda _, i: grads[i], 2)
    np.testing.assert_array_equal(ours, [0.0, 0.5, 1.5])
    np.testing.assert_array_equal(state["momentum_buffer"], [2.0, 1.0, -1.0])


def test_lazy_adam_passes_over_a_parameter_without_gradient(xp, train, draws):
    start, grads = draws(4)
    nothing = np.zeros_like(start)
    with_gaps = [nothing, nothing, grads[0], nothing, grads[1], grads[2], nothing, grads[3]]
    ours, state = train(LazyAdam(0.1), xp, start, lambda _, i: with_gaps[i], 8)
    expected, _ = train(Adam(0.1), xp, start, lambda _, i: grads[i], 4)
    np.testing.assert_allclose(ours, expected, rtol=1e-12)
    assert state["updates"] == 4


def test_nan_is_not_passed_over(xp, train):
    grads = np.array([[np.nan, 0.0], [0.0, 0.0]])
    ours, _ = train(SparseAdam(0.1), xp, np.ones((2, 2)), lambda _, i: grads, 1)
    assert np.isnan(ours[0, 0])
    np.testing.assert_array_equal(ours[1], 1.0)
