"""One level of a problem: a model with variables for inputs, and programs derived from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from edgeopt.derivatives import Model, load, make_inputs
from edgeopt.errors import SignatureError
from edgeopt_runtime.batch import BatchReader
from edgeopt_runtime.errors import BatchError, ExecutionError
from edgeopt_runtime.manifest import InputSpec
from edgeopt_runtime.providers import RUNTIME_ERRORS, Options

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Level", "Program"]


class Level:
    """A model of a loss.

    Args:
        role: ``lower`` or ``upper``, for messages.
        model: An ONNX model or its path; it is copied.
        names: Variables; those that the model has become its inputs.

    Attributes:
        model: The copy.
        loss: Name of its output.
        variables: Type and shape of the variables that it has, by name.
        values: Values of those that were weights.

    Raises:
        SignatureError: There is not one output, or a variable or input is of a type that does not fit.
    """

    def __init__(self, role: str, model: Model, names: Sequence[str]) -> None:
        self.role = role
        self.model = load(model)
        graph = self.model.graph
        if len(graph.outputs) != 1:
            outputs = [value.name for value in graph.outputs]
            raise SignatureError(f"The {role} model must have one output, its loss, but it has {outputs}.")
        self.loss = graph.outputs[0].name or ""
        constants = {value.name for node in graph if node.op_type == "Constant" for value in node.outputs}
        known = {value.name for value in graph.inputs} | set(graph.initializers) | constants
        present = [name for name in names if name in known]
        weights = make_inputs(self.model, present) if present else {}
        self.values = {name: np.array(tensor.numpy()) for name, tensor in weights.items()}
        specs = {spec.name: spec for spec in map(_spec, graph.inputs)}
        self.variables = {name: (specs[name].dtype, specs[name].shape) for name in present}

    def __str__(self) -> str:
        kinds = [
            (value.name, value.dtype) for value in (*self.model.graph.inputs, *self.model.graph.initializers.values())
        ]
        names = [repr(name) for name, dtype in kinds if dtype is not None and dtype.is_floating_point()]
        return f"{self.role} model, with the floating-point tensors {', '.join(names) or 'none'}"


class Program:
    """A model derived from a level's, in a session.

    Args:
        what: What it computes, for messages.
        model: The model.
        variables: Names that may be given without being inputs of it.
        options: Settings of ONNX Runtime.
    """

    def __init__(self, what: str, model: onnx.ModelProto, variables: Collection[str], options: Options) -> None:
        self._what = what
        specs = [_spec(value) for value in ir.serde.deserialize_model(model).graph.inputs]
        self._dtypes = {spec.name: spec.dtype for spec in specs}
        self._known = frozenset(variables) | self._dtypes.keys()
        self._read = BatchReader(specs, ignored=variables)
        self._session = options.open(what, model.SerializeToString())
        self._outputs = [value.name for value in model.graph.output]

    def run(self, values: Mapping[str, NDArray[Any]], data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Outputs by name. Variables and vectors are given in `values`, and rounded to the types of the graph.

        Raises:
            BatchError: The data lacks an input, has another, or has a wrong type or shape.
            ExecutionError: ONNX Runtime failed.
        """
        if shared := sorted(values.keys() & data.keys()):
            raise BatchError(f"The data of the {self._what} holds {shared}, which the solver chooses.")
        if unknown := sorted(data.keys() - self._known):
            # Each level has data of its own: what is too much here was meant for the other.
            raise BatchError(f"The {self._what} has no input `{unknown[0]}`, which is in its data.")
        rounded = {name: np.asarray(value, self._dtypes.get(name)) for name, value in values.items()}
        feeds = self._read({**data, **rounded})
        try:
            return dict(zip(self._outputs, self._session.run(self._outputs, feeds), strict=True))
        except RUNTIME_ERRORS as error:
            raise ExecutionError(
                f"ONNX Runtime failed in the {self._what}: {error}. Check the values of the data: a class index beyond "
                "the number of classes is a common cause."
            ) from error


def _spec(value: ir.Value) -> InputSpec:
    dtype = None if value.dtype is None else value.dtype.numpy()
    if dtype is None or dtype.kind not in "fiub" or value.shape is None:
        raise SignatureError(
            f"The input {value.name!r} is of type {value.dtype} and shape {value.shape}, but only arrays of known rank "
            "of numpy's own numbers can be given: float16, 32 or 64, integers, or bool."
        )
    # A dimension without a name may have any length.
    shape = (dim if isinstance(dim, int) else dim.value or f"{value.name}.{i}" for i, dim in enumerate(value.shape))
    return InputSpec(value.name or "", "model", dtype.name, tuple(shape))
