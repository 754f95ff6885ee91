"""Which tensors of a bundle are constants: weights that do not train, and what no graph writes besides."""

from __future__ import annotations

from dataclasses import replace

from edgeopt_runtime.manifest import ENCODED, Manifest, TensorSpec

__all__ = ["with_constants"]

# Scales, biases and statistics, which operators in front of them can take in.
_SMALL = 1 << 16
# Numbers of few bits, which the graph decodes, are not small until nothing is lost by decoding them for good.
_TINY = 1 << 10
_DECODED = ("float16", "bfloat16", "int8", "uint8")
# Kernels of convolutions, weights of recurrent layers.
_KERNEL = 3


def with_constants(manifest: Manifest) -> Manifest:
    """The same manifest, which says what never changes.

    Where every parameter trains it stays as it is. Else the parameters that do not, and the buffers, are constant
    unless a graph writes them. Kernels and small tensors are better as initializers, matrices and tables as inputs:
    `edgeopt_runtime.constants` has the reasons.
    """
    written = {port.tensor for signature in manifest.signatures.values() for port in signature.outputs}
    fixed = [
        spec
        for spec in manifest.tensors
        if spec.role in ("parameter", "buffer") and not spec.trainable and spec.name not in written
    ]
    names = {spec.name for spec in fixed if any(one.role == "parameter" for one in fixed)}
    tensors = (replace(spec, constant=_place(spec) if spec.name in names else None) for spec in manifest.tensors)
    return replace(manifest, tensors=tuple(tensors))


def _place(spec: TensorSpec) -> str:
    small = _TINY if spec.dtype in _DECODED else _SMALL
    if spec.constant == ENCODED:
        return ENCODED
    return "initializer" if len(spec.shape) >= _KERNEL or spec.nbytes <= small else "input"
