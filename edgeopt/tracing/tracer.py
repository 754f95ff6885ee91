"""Appends nodes to a graph: types inferred, names given, equal expressions computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

import numpy as np
import onnx_ir as ir

from edgeopt.errors import TracingError
from edgeopt.tracing import shapes
from edgeopt.tracing.array import Array, ArrayLike, to_ir_dtype
from edgeopt.tracing.inference import infer
from edgeopt.tracing.marks import WRITTEN
from edgeopt.tracing.randomness import RANDOM_OPERATORS
from edgeopt.tracing.subgraphs import all_nodes, bodies

__all__ = ["DOMAIN", "IR_VERSION", "OPSET", "Tracer"]

# ONNX Runtime 1.17 and later run opset 20 with IR 9.
OPSET = 20
IR_VERSION = 9
DOMAIN = "edgeopt"


class Tracer:
    """Records array programs as nodes of one graph.

    A node whose operator, operands and attributes equal those of an earlier one is not added again: scalar work that
    many parameters share (a bias correction, say) appears once.

    A body of control flow is recorded by a tracer of its own, from `subgraph`. Names are unique across all of them, and
    an operation is recorded in the innermost graph that its operands belong to.
    """

    def __init__(self, graph: ir.Graph, opset: int = OPSET, *, marks_operations: bool = False) -> None:
        self.graph = graph
        self.opset = opset
        #: Whether `fused` marks what it records; whoever asks for it outlines or removes the marks in the end.
        self.marks_operations = marks_operations
        self.marked: dict[Any, list[Array | None]] = {}
        #: What the lowering is to put in place of a node's outputs, since a gradient reads more than those.
        self.stand_ins: dict[ir.Node, list[Array]] = {}
        self.depth = 0
        self._known: dict[Any, tuple[Array, ...]] = {}
        self._names = _names_in(graph)
        self._counter: dict[str, int] = {}
        self._scope = ""

    def subgraph(self, name: str) -> Tracer:
        """A tracer for a new body, which becomes the attribute of a node that `emit` is given.

        Tensors of this tracer's graph may be used in it; its own may not be used outside.
        """
        return self.within(ir.Graph([], [], nodes=[], name=self.fresh_name(name)))

    def within(self, body: ir.Graph) -> Tracer:
        """A tracer that records into a body of one of this graph's nodes."""
        inner = Tracer(ir.Graph([], [], nodes=[]), self.opset)
        inner.graph, inner.depth, inner._scope = body, self.depth + 1, self._scope
        inner._names, inner._counter = self._names, self._counter
        return inner

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Names made inside begin with `name/`: what a reader of the graph sees in a viewer or a profile."""
        outer, self._scope = self._scope, f"{self._scope}{name}/"
        try:
            yield
        finally:
            self._scope = outer

    def wrap(self, value: ir.Value) -> Array:
        """A tensor that is already in the graph, as an array."""
        return Array(self, value)

    def fresh_name(self, stem: str) -> str:
        """A name that no tensor of the graph has yet."""
        stem = self._scope + stem
        while True:
            number = self._counter.get(stem, 0)
            self._counter[stem] = number + 1
            name = f"{stem}_{number}" if number else stem
            if name not in self._names:
                self._names.add(name)
                return name

    def constant(self, value: ArrayLike | Sequence[float], dtype: Any = None) -> Array:
        """A constant tensor; arrays of this graph pass through (cast if `dtype` differs)."""
        if isinstance(value, Array):
            return value if dtype is None or value.dtype == np.dtype(dtype) else self.cast(value, dtype)
        if dtype is None and isinstance(value, (list, tuple)):
            dtype = np.int64  # axes and shapes; an empty list would come out as float64
        array = np.asarray(value, dtype=dtype)
        # `tobytes` is the exact identity of a value: -0.0 differs from 0.0, and NaN equals itself.
        key = ("constant", array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        known = self._remembered(key)
        if known is None:
            tensor = ir.tensor(array)
            output = ir.Value(
                name=self.fresh_name("constant"),
                type=ir.TensorType(tensor.dtype),
                shape=ir.Shape(array.shape),
                const_value=tensor,
            )
            self.graph.append(
                ir.Node("", "Constant", [], [ir.AttrTensor("value", tensor)], outputs=[output], name=output.name)
            )
            known = self._known[key] = (Array(self, output),)
        return known[0]

    def _remembered(self, key: Any) -> tuple[Array, ...] | None:
        """What an equal node computed earlier, unless a pass has taken that node out of the graph since."""
        known = self._known.get(key)
        if known is None:
            return None
        producer = known[0].value.producer()
        return known if producer is not None and producer.graph is self.graph else None

    def cast(self, array: Array, dtype: Any) -> Array:
        """The array with another element type."""
        if array.dtype == np.dtype(dtype):
            return array
        return self.emit("Cast", array, to=int(to_ir_dtype(dtype)))

    def stop_gradient(self, array: Array) -> Array:
        """The array again; reverse mode knows this Identity by its mark, and every other one passes gradients."""
        key = ("stop_gradient", array.value)
        if key not in self._known:
            node = ir.Node("", "Identity", [array.value], num_outputs=1)
            node.metadata_props["edgeopt.stop_gradient"] = "1"
            self._known[key] = self._append(node)
        return self._known[key][0]

    def boundary(self, kind: str, array: Array, *behind: Array, **attributes: Any) -> Array:
        """The array again, after a marker of `tracing.fusing`, which may read others too and is like no other."""
        values = [each.value for each in (array, *behind)]
        node = ir.Node(DOMAIN, kind, values, ir.convenience.convert_attributes(attributes), num_outputs=1)
        value = node.outputs[0]
        value.name, value.type, value.shape = self.fresh_name(kind.lower()), array.value.type, array.value.shape
        node.name = value.name
        self.graph.append(node)
        return Array(self, value)

    def written(self, old: Array, new: Array) -> Array:
        """The values of one array with the gradient of another: what it was before something was written into it.

        It is a `Where` that always chooses the new values. The rule of `Where` knows it by its mark.
        """
        values = [self.constant(np.bool_(False)), old, self.stop_gradient(new)]
        node = ir.Node("", "Where", [array.value for array in values], num_outputs=1)
        node.metadata_props[WRITTEN] = "1"
        return self._append(node)[0]

    def promote(self, *operands: ArrayLike) -> list[Array]:
        """Operands with one common dtype, by the rules of the Array API: Python scalars take the arrays' dtype."""
        arrays = [x for x in operands if isinstance(x, (Array, np.ndarray, np.generic))]
        dtype = arrays[0].dtype
        for array in arrays[1:]:
            if array.dtype != dtype:
                dtype = np.promote_types(dtype, array.dtype)
        if dtype.kind in "iub" and any(isinstance(x, float) for x in operands):
            raise TracingError("An integer array meets a Python float: cast the array first.")
        return [self.constant(x, dtype) for x in operands]

    @overload
    def emit(
        self, op_type: str, *inputs: ArrayLike | Sequence[int] | None, outputs: int, **attributes: Any
    ) -> tuple[Array, ...]: ...

    @overload
    def emit(self, op_type: str, *inputs: ArrayLike | Sequence[int] | None, **attributes: Any) -> Array: ...

    def emit(
        self,
        op_type: str,
        *inputs: ArrayLike | Sequence[int] | None,
        outputs: int | None = None,
        **attributes: Any,
    ) -> Array | tuple[Array, ...]:
        """Append one operator of the standard domain.

        Args:
            op_type: The operator's name.
            inputs: Arrays, numpy arrays or scalars (which become constants; a Python float takes the type of the
                first array, ints and lists of ints become int64), None for an input left out.
            outputs: How many outputs to ask for; without it the one output is returned by itself.
            attributes: The operator's attributes; None means absent.

        Raises:
            TracingError: The operator does not accept these operands.
        """
        float_dtype = next((x.dtype for x in inputs if isinstance(x, Array)), None)
        innermost = max((x.tracer for x in inputs if isinstance(x, Array)), key=_depth, default=self)
        if innermost.depth > self.depth:
            return innermost.emit(op_type, *inputs, outputs=outputs, **attributes)
        operands = [
            None if x is None else self.constant(x, float_dtype if isinstance(x, float) else None) for x in inputs
        ]
        while operands and operands[-1] is None:
            operands.pop()
        attrs = ir.convenience.convert_attributes({k: v for k, v in attributes.items() if v is not None})
        # The values themselves, not their ids: one that is gone must not lend its id to another.
        key = (
            op_type,
            outputs,
            tuple(None if x is None else x.value for x in operands),
            tuple(sorted((attr.name, repr(attr.value)) for attr in attrs)),
        )
        results = None if op_type in RANDOM_OPERATORS else self._remembered(key)
        if results is None:
            values = [None if x is None else x.value for x in operands]
            node = ir.Node("", op_type, values, attrs, num_outputs=outputs or 1)
            results = self._append(node)
            if not bodies(node):
                self._known[key] = results
        return results[0] if outputs is None else results

    def _append(self, node: ir.Node) -> tuple[Array, ...]:
        for value, (dtype, shape) in zip(node.outputs, infer(node, self.opset), strict=True):
            value.type = ir.TensorType(dtype)
            value.shape = shape
            value.name = self.fresh_name(node.op_type.lower())
        node.name = node.outputs[0].name
        self.graph.append(node)
        return tuple(Array(self, value) for value in node.outputs)

    def call(
        self,
        function: ir.Function,
        inputs: Sequence[Array],
        names: Sequence[str],
        attributes: dict[str, Any] | None = None,
    ) -> list[Array]:
        """Append a call of a model-local function; its outputs take `names` and the types of the function's own."""
        node = ir.Node(
            function.domain,
            function.name,
            [array.value for array in inputs],
            ir.convenience.convert_attributes(attributes or {}),
            num_outputs=len(function.outputs),
            name=self.fresh_name(function.name),
        )
        for value, inner, name in zip(node.outputs, function.outputs, names, strict=True):
            value.name, value.type, value.shape = self.fresh_name(name), inner.type, inner.shape
        self.graph.append(node)
        return [Array(self, value) for value in node.outputs]

    def input(self, name: str, dtype: Any, shape: shapes.Shape) -> Array:
        """Add an input to the graph."""
        if name in self._names:
            raise TracingError(f"The graph has a tensor named {name!r} already.")
        self._names.add(name)
        return self._input(name, dtype, shape)

    def argument(self, stem: str, dtype: Any, shape: shapes.Shape) -> Array:
        """Add an input to the graph under a fresh name; the inputs of a body go by their order."""
        return self._input(self.fresh_name(stem), dtype, shape)

    def _input(self, name: str, dtype: Any, shape: shapes.Shape) -> Array:
        value = ir.Value(name=name, type=ir.TensorType(to_ir_dtype(dtype)), shape=shapes.to_ir(shape))
        self.graph.inputs.append(value)
        return Array(self, value)

    def result(self, array: Array, stem: str = "result") -> None:
        """Make an array an output of the graph under a fresh name; the outputs of a body go by their order."""
        self.output(array, self.fresh_name(stem))

    def output(self, array: Array, name: str) -> None:
        """Make an array an output of the graph under this name; an intermediate tensor of that name gives it up.

        Raises:
            TracingError: An input or another output has the name.
        """
        value = array.value
        producer = value.producer()
        if value.is_graph_output() or producer is None or producer.graph is not self.graph:
            array = self._append_identity(array)
        if name in self._names and array.value.name != name:
            self._free_name(name)
        self._names.add(name)
        array.value.name = name
        self.graph.outputs.append(array.value)

    def _append_identity(self, array: Array) -> Array:
        return self._append(ir.Node("", "Identity", [array.value], num_outputs=1))[0]

    def _free_name(self, name: str) -> None:
        if any(value.name == name for value in (*self.graph.inputs, *self.graph.outputs)):
            raise TracingError(f"The graph has an input or output named {name!r} already.")
        for node in all_nodes(self.graph):
            for value in (*node.outputs, *(value for body in bodies(node) for value in body.inputs)):
                if value.name == name:
                    value.name = self.fresh_name(f"{name}_inner")


def _names_in(graph: ir.Graph) -> set[str | None]:
    names: set[str | None] = set()
    graphs = [graph]
    for node in all_nodes(graph):
        # A node is named after its output, which may have been renamed since; node names must differ too.
        names.add(node.name)
        names.update(value.name for value in node.outputs)
        graphs += bodies(node)
    for each in graphs:
        names.update(value.name for value in each.inputs)
        names.update(each.initializers)
    return names


def _depth(tracer: Tracer) -> int:
    return tracer.depth
