"""One graph of the bundle under construction, and the signature that says what its inputs and outputs are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from edgeopt.errors import SignatureError
from edgeopt.fusion import fuse, is_chain
from edgeopt.lowering import give_scalars_a_rank, lower, uses_random_numbers
from edgeopt.outlining import outline
from edgeopt.recomputation import has_regions, recompute
from edgeopt.tracing import Array, Tracer, new_graph, new_model, op, shapes
from edgeopt.tracing.marks import REGION, WEIGHTS
from edgeopt.training.forward import ForwardGraph
from edgeopt.training.graphs.branches import move_into_branch
from edgeopt.training.graphs.finiteness import finite_check, without_infinities
from edgeopt.training.graphs.simplify import clean_up, move_to_front, remove_unused
from edgeopt.training.names import CHECK, DRAWS, SEED
from edgeopt.training.updating.fused import Functions
from edgeopt.training.updating.state import State
from edgeopt_runtime.manifest import GraphInput, GraphOutput, InputSpec, Signature

__all__ = ["BuiltGraph", "GraphBuilder"]

#: The graphs that train, whose results must be finite to be kept.
CHECKED = ("step", "accumulate", "apply")


class BuiltGraph(NamedTuple):
    """A finished graph: its signature, and the serialized model."""

    signature: Signature
    model: bytes


class GraphBuilder:
    """Adds a training computation to a forward graph (or to an empty one), port by port.

    State, batch and hyperparameter inputs appear in the graph when they are first asked for.
    """

    def __init__(
        self, name: str, state: State, forward: ForwardGraph | None = None, merged: Collection[str] = ()
    ) -> None:
        self._name = name
        self._state = state
        self.graph: ir.Graph = new_graph(name) if forward is None else forward.copy()
        self.graph.name = name
        self.tracer = Tracer(self.graph, marks_operations=name in CHECKED)
        self.functions = Functions()
        self._finished: frozenset[str] = frozenset()
        self._kinds: dict[str, str] = {}
        self._vectors: dict[str, str] = {}
        self._outputs: list[GraphOutput] = []
        self._branches: list[tuple[Callable[[], Array], list[ir.Node]]] = []
        self._recomputed: tuple[ir.Value, str | Sequence[str]] | None = None
        self._checks: list[Array] = []
        self._checked: set[str] = set()
        self.predictions: dict[str, Array] = {}
        self.updated_buffers: dict[str, Array] = {}
        self.updated_parameters: dict[str, Array] = {}
        if forward is not None:
            results = [self.tracer.wrap(value) for value in self.graph.outputs]
            names = [*forward.outputs, *forward.updated_buffers, *forward.updated_parameters]
            by_name = dict(zip(names, results, strict=True))
            self.predictions = {key: by_name[key] for key in forward.outputs}
            self.updated_buffers = {key: by_name[key] for key in forward.updated_buffers}
            self.updated_parameters = {key: by_name[key] for key in forward.updated_parameters}
            self.graph.outputs.clear()
            kinds = {**dict.fromkeys(merged, "merged"), **dict.fromkeys(forward.inputs, "batch")}
            self._kinds = {value.name or "": kinds.get(value.name or "", "state") for value in self.graph.inputs}

    @classmethod
    def reopen(
        cls, name: str, state: State, signature: Signature, model: ir.Model, keep: Collection[GraphOutput]
    ) -> GraphBuilder:
        """A builder that goes on with a finished graph.

        Args:
            name: That of the signature.
            state: The tensors, those that are new included.
            signature: Of the graph.
            model: The graph, changed in place; its outputs may be followed by more, which are not reported but kept
                for what is to be built, and inputs that the signature does not name are tensors of the state.
            keep: The outputs that stay. What only the others need goes, and inputs with it.
        """
        # What is written is checked anew.
        keep = [port for port in keep if port.kind != "check"]
        builder = cls(name, state)
        builder.graph = model.graph
        values = dict(zip(signature.outputs, model.graph.outputs, strict=False))
        kept, wanted = [values[port] for port in signature.outputs if port in keep], model.graph.outputs[len(values) :]
        model.graph.outputs[:] = [*kept, *wanted]
        remove_unused(model)
        if not any(value.name == SEED and value.uses() for value in model.graph.inputs):
            # Nothing draws random numbers any more, so nothing is counted.
            keep = [port for port in keep if port.tensor != DRAWS]
            kept = [values[port] for port in signature.outputs if port in keep]
            model.graph.outputs[:] = [*kept, *wanted]
            remove_unused(model)
        names = [value.name or "" for value in model.graph.inputs]
        kinds = {
            **{name: GraphInput(name, "state") for name in names},
            **{port.name: port for port in signature.inputs},
        }
        model.graph.inputs[:] = [
            value
            for value in model.graph.inputs
            if value.uses() or value.is_graph_output() or kinds[value.name or ""].kind == "batch"
        ]
        model.graph.outputs[:] = kept
        builder.tracer = Tracer(model.graph)
        builder.functions.by_name = {function.name: function for function in model.functions.values()}
        # Read from a file they have no types, and are lowered and fused as they are.
        builder._finished = frozenset(builder.functions.by_name)
        builder._outputs = [port for port in signature.outputs if port in keep]
        left = [kinds[value.name or ""] for value in model.graph.inputs]
        builder._kinds = {port.name: port.kind for port in left}
        builder._vectors = {port.name: port.tensor for port in left if port.tensor is not None}
        return builder

    def state(self, name: str) -> Array:
        """A state tensor, as an input of the graph."""
        spec = self._state.spec(name)
        return self._input(name, "state", spec.dtype, spec.shape)

    @property
    def shares(self) -> int:
        """How many weights the losses are divided by."""
        return self._state.shares

    def shares_of(self, parameter: str) -> list[int]:
        """Those whose losses have a gradient for a parameter."""
        return self._state.shares_of(parameter)

    def parameter(self, name: str) -> Array:
        """A parameter as the forward pass leaves it: the state tensor, or what the model has written into it."""
        return self.updated_parameters[name] if name in self.updated_parameters else self.state(name)

    def batch(self, spec: InputSpec) -> Array:
        """A tensor of the batch, as an input of the graph."""
        return self._input(spec.name, "batch", spec.dtype, spec.shape)

    def hyper(self, name: str) -> Array:
        """A hyperparameter, a float64 scalar, as an input of the graph."""
        return self._input(name, "hyper", "float64", ())

    def vector(self, parameter: str) -> Array:
        """A direction in which a parameter may move, as an input of the graph."""
        spec, name = self._state.spec(parameter), f"vector.{parameter}"
        if self._kinds.get(name, "vector") != "vector":
            raise SignatureError(
                f"{self._name}.onnx needs the name {name!r} for itself; rename that part of the model."
            )
        self._vectors[name] = parameter
        return self._input(name, "vector", spec.dtype, spec.shape)

    def reads(self, name: str) -> bool:
        """Whether the graph has an input of that name already."""
        return name in self._kinds

    def substitute(self, old: Array, new: Array) -> None:
        """Let everything read another array instead, but for what that array is made from."""
        producer = new.value.producer()
        for node, position in [use for use in old.value.uses() if use.node is not producer]:
            node.replace_input_with(position, new.value)
        self.predictions = {
            name: new if array.value is old.value else array for name, array in self.predictions.items()
        }
        self.graph.sort()

    def only_if(self, condition: Callable[[], Array], arrays: Sequence[Array]) -> list[Array]:
        """The arrays where the condition, a scalar, holds, and zeros elsewhere; then their work is not done."""
        marks = [op.Identity(array) for array in arrays]
        nodes = [node for mark in marks if (node := mark.value.producer()) is not None]
        # What stands before the marks is moved at the end, since the lowering walks the main graph only. The condition
        # is traced then too: until there is the If, nobody reads it.
        self._branches.append((condition, nodes))
        return marks

    @property
    def has_regions(self) -> bool:
        """Whether the model marks activations that are to be computed again."""
        return has_regions(self.graph)

    def drop_activations(self, seed: Array, what: str | Sequence[str]) -> Array:
        """The seed of the backward pass, marked: what comes before it is computed again behind it."""
        marked = self.tracer.stop_gradient(seed)
        # Done at the end, when random numbers are ordinary arithmetic.
        self._recomputed = (marked.value, what)
        return marked

    def _input(self, name: str, kind: str, dtype: str, shape: tuple[int | str, ...]) -> Array:
        if name in self._kinds:
            return self.tracer.wrap(next(value for value in self.graph.inputs if value.name == name))
        self._kinds[name] = kind
        return self.tracer.input(name, np.dtype(dtype), shape)

    def _is_source(self, name: str) -> bool:
        """Whether what is dropped depends on the input: the batch, what random numbers come from, narrow weights."""
        return self._kinds[name] == "batch" or name in (SEED, DRAWS) or name in self._state.codes

    def set_state(self, name: str, value: Array) -> None:
        """Make an array the next value of a state tensor."""
        self._output(value, GraphOutput(f"next.{name}", "state", tensor=name))

    def to_check(self, names: Iterable[str], value: Array) -> Array:
        """What of the next values of some tensors has to be finite: all, but for infinities where one begins so."""
        joined = self._state.joined
        members = [member for name in names for member in (joined[name].members if name in joined else (name,))]
        first = [np.asarray(self._state.values[member]) for member in members if member in self._state.values]
        infinite = any(array.dtype.kind == "f" and bool(np.isinf(array).any()) for array in first)
        return without_infinities(value) if infinite else value

    def checked(self, names: Iterable[str], check: Array) -> None:
        """Take over a number that is 0 if the next values of these tensors are finite, and NaN if not."""
        self._checked.update(names)
        self._checks.append(check)

    def _check_written(self) -> None:
        """Report one number that says whether everything that the graph writes is finite."""
        written = [
            self.to_check([port.tensor], self.tracer.wrap(value))
            for port, value in zip(self._outputs, self.graph.outputs, strict=True)
            if port.tensor is not None and port.tensor not in self._checked
        ]
        rest = finite_check(written)
        checks = [*self._checks, *([] if rest is None else [rest])]
        if checks:
            self._output(sum(checks[1:], start=checks[0]), GraphOutput(CHECK, "check"))

    def metric(self, name: str, value: Array, weight: Array | None = None) -> None:
        """Report a scalar; with its weight where it is to be averaged over batches."""
        if weight is None:
            self._output(value, GraphOutput(name, "metric"))
            return
        self._output(value, GraphOutput(name, "metric", weight=f"{name}.weight"))
        self._output(weight, GraphOutput(f"{name}.weight", "weight"))

    def sums(self, sums: Mapping[str, Array]) -> None:
        """Report what is added up over batches, but for what is reported already."""
        known = {port.name for port in self._outputs}
        for name, value in sums.items():
            if name not in known:
                self._output(value, GraphOutput(name, "sum"))

    def sum(self, name: str, shape: shapes.Shape) -> Array:
        """What was added up over batches, in float64, as an input of the graph."""
        return self._input(name, "sum", "float64", tuple(dim for dim in shape if isinstance(dim, int)))

    def output(self, name: str, value: Array) -> None:
        """Return a tensor of the model."""
        self._output(value, GraphOutput(name, "output"))

    def merged(self, name: str, value: Array) -> None:
        """Return a weight that the plain model is to read."""
        self._output(value, GraphOutput(name, "merged"))

    def _output(self, value: Array, port: GraphOutput) -> None:
        if port.name in self._kinds or port.name in {output.name for output in self._outputs}:
            raise SignatureError(
                f"{self._name}.onnx would return {port.name!r}, which is also the name of "
                f"{'an input' if port.name in self._kinds else 'another result'}. Rename that input (the argument of "
                "forward, or the loss's `target`), output, parameter or metric."
            )
        self.tracer.output(value, port.name)
        self._outputs.append(port)

    def finish(self) -> BuiltGraph:
        """Lower, clean up and serialize."""
        if uses_random_numbers(self.graph):
            draws, seed = self.state(DRAWS), self.state(SEED)
            if any(port.tensor == DRAWS for port in self._outputs):
                # A reopened graph draws already, by the seed itself: these must be other numbers.
                seed = seed + np.int64(1 << 32)
            else:
                self.set_state(DRAWS, draws + np.int64(1))
            lower(self.tracer, seed=seed, draws=draws)
        else:
            lower(self.tracer)
        if self._recomputed is not None:
            mark, what = self._recomputed
            sources = [value for value in self.graph.inputs if self._is_source(value.name or "")]
            recompute(self.tracer, mark, sources, what=what)
        for condition, marks in self._branches:
            move_into_branch(self.graph, condition().value, marks)
        if self._name in CHECKED:
            self._check_written()
        for function in [each for name, each in self.functions.by_name.items() if name not in self._finished]:
            lower(function.graph)
            if not is_chain(function):
                chains = fuse(function, self.functions.by_name)
                self.functions.by_name |= {chain.name: chain for chain in chains}
        self.functions.by_name |= outline(self.graph, self.functions.by_name)
        # What others call comes first, as onnx's reference evaluator wants it.
        functions = sorted(self.functions.by_name.values(), key=is_chain, reverse=True)
        model = new_model(self.graph, functions)
        for graph in (model.graph, *(function.graph for function in model.functions.values())):
            give_scalars_a_rank(graph)
        decoding = [node for node in self.graph if node.metadata_props.get(REGION, "").startswith(WEIGHTS)]
        clean_up(model)
        move_to_front(self.graph, decoding)
        used = [value for value in self.graph.inputs if value.uses() or self._kinds[value.name or ""] == "batch"]
        self.graph.inputs[:] = used
        names = [value.name or "" for value in used]
        inputs = tuple(GraphInput(name, self._kinds[name], self._vectors.get(name)) for name in names)
        signature = Signature(f"{self._name}.onnx", inputs, tuple(self._outputs))
        return BuiltGraph(signature, ir.serde.serialize_model(model).SerializeToString(deterministic=True))
