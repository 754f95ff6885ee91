"""Constants of a bundle inside its graphs: tensors that never change, as initializers in place of inputs.

A graph file has them as inputs, like everything else, so that any runtime can bind them. As an initializer ONNX Runtime
can work on a tensor before the first step: it folds a frozen BatchNorm into the convolution in front of it, lays
kernels out for the processor, packs matrices. That makes convolutional networks several times faster. The price is a
copy in every graph's session, which pays for kernels, and neither for tables that rows are taken from nor for the
matrices of a transformer (measured: 2 to 15 % of a step for as much memory again as they have, in each graph). So the
manifest says of each constant which of the two is better, and one array is what all graphs read of those bound.

Small initializers are written into the model. Large ones are named as external data, which ONNX Runtime is handed as
values that share the memory of the session's array, so that no file is ever opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import onnxruntime

from edgeopt_runtime.errors import StateError
from edgeopt_runtime.manifest import Signature, TensorSpec
from edgeopt_runtime.onnx_wire import External, bake, graph_inputs
from edgeopt_runtime.tensors import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeopt_runtime.state import StateBuffers

__all__ = ["Baked", "ConstantPlaces", "bake_constants", "check_places"]

#: Where constants are: ``auto`` as the manifest says, ``initializers`` in every graph, ``inputs`` in none.
ConstantPlaces = Literal["auto", "initializers", "inputs"]

# From here on an initializer is worth a value of its own.
LARGE = 1 << 12
# What ONNX Runtime would copy to a device at every run, were it bound; numbers of few bits are decoded in the graph,
# and would be decoded for good, at their full size, if they were initializers.
WIDE = ("float32", "float64", "bool", "int32", "int64")


class Baked(NamedTuple):
    """A graph with initializers.

    Attributes:
        graph: The serialized model.
        names: The inputs that became initializers.
        values: Large ones by name, which must live as long as the session.
    """

    graph: bytes
    names: frozenset[str]
    values: Mapping[str, onnxruntime.OrtValue]

    def settle(self, settings: onnxruntime.SessionOptions) -> None:
        """Let a session that is to be made take the large values from memory."""
        names = list(self.values)
        if names:
            # The first hands them to the optimizers, the second keeps what stays of them from being copied.
            settings.add_external_initializers(names, [self.values[name] for name in names])
            for name in names:
                settings.add_initializer(name, self.values[name])


def check_places(places: str) -> None:
    """Refuse another word.

    Raises:
        StateError: It is none of `ConstantPlaces`.
    """
    if places not in ("auto", "initializers", "inputs"):
        raise StateError(f'`constants` must be "auto", "initializers" or "inputs", not {places!r}.')


def bake_constants(
    graph: bytes, signature: Signature, state: StateBuffers, places: ConstantPlaces, *, cpu_only: bool
) -> Baked:
    """A graph whose constants are initializers where that is wanted.

    Raises:
        GraphError: The bytes are no ONNX model.
    """
    read = (state.specs[port.name] for port in signature.inputs if port.kind == "state")
    wanted = _wanted((spec for spec in read if spec.constant), places, cpu_only)
    names = wanted & graph_inputs(graph) if wanted else frozenset()
    if not names:
        return Baked(graph, names, {})
    tensors: dict[str, tuple[str, NDArray[Any] | External]] = {}
    values: dict[str, onnxruntime.OrtValue] = {}
    for name in sorted(names):
        array, dtype = state.current(name), state.specs[name].dtype
        if array.nbytes >= LARGE and dtype != "bfloat16":
            tensors[name], values[name] = (dtype, External(array)), state.reading(name)
        else:
            tensors[name] = dtype, array
    pieces: list[Buffer] = bake(graph, tensors)
    return Baked(b"".join(pieces), names, values)


def _wanted(constants: Iterable[TensorSpec], places: ConstantPlaces, cpu_only: bool) -> frozenset[str]:
    if places == "inputs":
        return frozenset()
    if places == "initializers":
        return frozenset(spec.name for spec in constants)
    return frozenset(
        spec.name for spec in constants if spec.constant == "initializer" or (not cpu_only and spec.dtype in WIDE)
    )
