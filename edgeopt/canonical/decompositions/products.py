"""Products that optimizers have fused with transpositions, factors, biases and activations."""

from __future__ import annotations

from edgeopt.canonical.decompositions.activations import activated, activation_problem
from edgeopt.canonical.registry import decomposition
from edgeopt.errors import UnsupportedModelError
from edgeopt.tracing import Array, op
from edgeopt.tracing.matrices import adjugate
from edgeopt.tracing.site import Site


def _turned(x: Array, transposed: bool, batch_transposed: bool) -> Array:
    """An operand as MatMul wants it; the first dimension may stand in front of those of the batch."""
    if x.ndim < 2 or not (transposed or batch_transposed):
        return x
    order = list(range(x.ndim))
    if batch_transposed:
        order = [*order[1:-1], 0, order[-1]]
    if transposed:
        order[-1], order[-2] = order[-2], order[-1]
    return op.Transpose(x, perm=order)


@decomposition(
    "com.microsoft::FusedMatMul",
    "com.microsoft::FusedMatMulActivation",
    "com.microsoft::TransposeMatMul",
    limits=activation_problem,
)
def fused_matmul(n: Site) -> Array:
    """alpha A' B'."""
    a = _turned(n.x, bool(n.attr("transA", 0)), bool(n.attr("transBatchA", 0)))
    b = _turned(n.input(1), bool(n.attr("transB", 0)), bool(n.attr("transBatchB", 0)))
    return activated(n, op.MatMul(a, b) * n.number("alpha", 1.0))


@decomposition("com.microsoft::FusedGemm", limits=activation_problem)
def fused_gemm(n: Site) -> Array:
    """alpha A' B' + beta C."""
    numbers = {name: n.number(name, 1.0) for name in ("alpha", "beta")}
    flags = {name: n.attr(name, 0) for name in ("transA", "transB")}
    return activated(n, op.Gemm(*n.inputs[:3], **numbers, **flags))


@decomposition("com.microsoft::GemmFastGelu")
def gemm_fast_gelu(n: Site) -> Array:
    """The tanh approximation of a layer."""
    product = op.MatMul(n.x, n.input(1))
    return op.Gelu(product + n.input(2) if n.has(2) else product, approximate="tanh")


@decomposition("com.microsoft::CDist")
def cdist(n: Site) -> Array:
    """The distance of each row of A to each row of B, or its square."""
    difference = op.Unsqueeze(n.x, [1]) - op.Unsqueeze(n.input(1), [0])
    metric = n.attr("metric", "sqeuclidean")
    if metric == "sqeuclidean":
        return op.ReduceSumSquare(difference, [-1], keepdims=0)
    if metric != "euclidean":
        raise UnsupportedModelError(f"{n}: ONNX Runtime knows no metric {metric!r} either.")
    return op.ReduceL2(difference, [-1], keepdims=0)


# As for determinants.
_LARGEST_INVERSE = 16


def _is_large(n: Site) -> str | None:
    size = n.x.shape[-1]
    known = isinstance(size, int) and size <= _LARGEST_INVERSE
    return None if known else f"its matrix is not known to have {_LARGEST_INVERSE} rows at most"


@decomposition("com.microsoft::Inverse", limits=_is_large)
def inverse(n: Site) -> Array:
    """The adjugate divided by the determinant."""
    size = n.x.shape[-1]
    adjoint, determinant = adjugate(n.x, size if isinstance(size, int) else 0)
    return adjoint / op.Unsqueeze(determinant, [-2, -1])


@decomposition("com.microsoft::TorchEmbedding")
def torch_embedding(n: Site) -> Array:
    """Rows of a table."""
    return op.Gather(n.x, n.input(1))
