"""A finished graph, and where the optimizer is in it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from edgeopt.errors import SignatureError
from edgeopt.tracing import DOMAIN
from edgeopt.training.names import STEP
from edgeopt.training.surgery.carry import OldRule
from edgeopt_runtime.manifest import GraphOutput, Manifest, TensorSpec, is_share

__all__ = ["Call", "Cut"]


class Call:
    """A call of a function of the domain `edgeopt`.

    Attributes:
        node: The call.
        function: What it calls.
        operands: The operands by their names inside the function.
        results: The results by their names inside the function.
    """

    def __init__(self, node: ir.Node, function: ir.Function) -> None:
        self.node, self.function = node, function
        pairs = zip(function.inputs, node.inputs, strict=True)
        self.operands = {inner.name or "": outer for inner, outer in pairs if outer is not None}
        self.results = {inner.name or "": outer for inner, outer in zip(function.outputs, node.outputs, strict=True)}


class Cut:
    """A finished graph, and where the optimizer is in it.

    Attributes:
        manifest: The bundle's.
        name: That of the signature.
        content: The graph as it was.
        signature: The graph's.
        model: The graph, to be changed.
        parameters: The descriptions of the parameters, by name.
    """

    def __init__(self, manifest: Manifest, name: str, content: bytes) -> None:
        self.manifest, self.name, self.content = manifest, name, content
        self.signature = manifest.signatures[name]
        self.model = ir.serde.deserialize_model(onnx.ModelProto.FromString(content))
        common_passes.ShapeInferencePass(strict_mode=False)(self.model)
        self.parameters: dict[str, TensorSpec] = {
            spec.name: spec for spec in manifest.tensors if spec.role == "parameter"
        }

    @property
    def updates(self) -> list[Call]:
        """The calls of update rules."""
        return list(self._calls("updated."))

    @property
    def views(self) -> dict[str, ir.Value]:
        """What evaluation uses in the place of parameters, by parameter."""
        return {
            name.removeprefix("view."): value for call in self._calls("view.") for name, value in call.results.items()
        }

    @property
    def transforms(self) -> list[Call]:
        """The calls of gradient transforms, in order."""
        return list(self._calls("next."))

    def _calls(self, prefix: str) -> Iterator[Call]:
        for node in self.model.graph:
            function = self.model.functions.get(node.op_identifier()) if node.domain == DOMAIN else None
            if function is not None and any((value.name or "").startswith(prefix) for value in function.outputs):
                yield Call(node, function)

    def rules(self) -> dict[str, OldRule]:
        """The rule of each parameter."""
        found: dict[str, OldRule] = {}
        for call in self.updates:
            # A second call of one name has a number.
            outer = re.sub(r"_\d+$", "", call.node.op_type)
            inner = sorted((key for key in call.node.attributes if re.fullmatch("inner(_inner)*", key)), key=len)
            classes = (outer, *(call.node.attributes[key].as_string() for key in inner))
            rule = OldRule(tuple(name for name in classes if name != "QuantizedState"), self.numbers(call))
            names = [*call.operands, *(key.removeprefix("updated.") for key in call.results)]
            found |= {key.removeprefix("param."): rule for key in names if key.startswith("param.")}
        return found

    def numbers(self, call: Call) -> dict[str, float]:
        """The hyperparameters of a call by its own names, with their defaults."""
        defaults = {spec.name: spec.default for spec in self.manifest.hyperparameters}
        return {key: defaults[value.name or ""] for key, value in call.operands.items() if value.name in defaults}

    def gradients(self) -> dict[str, ir.Value]:
        """What the updates get, by parameter or joined unit."""
        return {
            key.removeprefix("grad."): value
            for call in self.updates
            for key, value in call.operands.items()
            if key.startswith("grad.")
        }

    def written(self) -> dict[str, ir.Value]:
        """What the model has written into parameters, which is what the updates begin with, by parameter."""
        return {
            key.removeprefix("param."): value
            for call in self.updates
            for key, value in call.operands.items()
            if key.startswith("param.") and not value.is_graph_input()
        }

    def sums(self) -> dict[str, ir.Value]:
        """What this graph adds to the gradient accumulators, by parameter: in its shape, or as a vector.

        Raises:
            SignatureError: It does so in another way than graphs of edgeopt do.
        """
        owners = {spec.name: spec.parameter or "" for spec in self.manifest.accumulators}
        members = {entry.name: entry.members for entry in self.manifest.joined}
        found: dict[str, ir.Value] = {}
        for port, output in zip(self.signature.outputs, self.model.graph.outputs, strict=True):
            if port in self.sum_ports():
                names = [owners[member] for member in members.get(port.tensor or "", (port.tensor or "",))]
                for name, value in zip(names, self._parts(output, port, len(names)), strict=True):
                    self.describe(value, name, flat=len(names) > 1)
                    found[name] = value
        return found

    def _parts(self, output: ir.Value, port: GraphOutput, count: int) -> Sequence[ir.Value]:
        node = output.producer()
        addends = [value for value in node.inputs if value is not None] if node is not None else []
        values = [value for value in addends if value.name != port.tensor]
        parts: list[ir.Value] = [*values]
        if count > 1 and len(values) == 1:
            producer = values[0].producer()
            while producer is not None and producer.op_type == "Cast":
                producer = producer.inputs[0].producer() if producer.inputs[0] is not None else None
            together = producer is not None and producer.op_type == "Concat"
            parts = [value for value in producer.inputs if value is not None] if together and producer else []
        if node is None or node.op_type != "Add" or len(values) != 1 or len(parts) != count:
            raise SignatureError(
                f"{self.signature.file} adds to {port.tensor!r} in a way of its own; export the model anew."
            )
        return parts

    def sum_ports(self) -> set[GraphOutput]:
        """The outputs that are gradient accumulators."""
        sums = {spec.name for spec in self.manifest.accumulators if spec.slot is None and spec.parameter is not None}
        sums |= {entry.name for entry in self.manifest.joined if entry.members[0] in sums}
        return {port for port in self.signature.outputs if port.tensor in sums}

    def share_ports(self, *, but_of: Collection[str]) -> set[GraphOutput]:
        """The outputs that are accumulators of further shares, but for those of some parameters."""
        owners = {spec.name: spec.parameter for spec in self.manifest.accumulators if is_share(spec)}
        left = {name for name, owner in owners.items() if owner is not None and owner not in but_of}
        return {port for port in self.signature.outputs if port.tensor in left}

    def update_ports(self) -> set[GraphOutput]:
        """The outputs that the updates write, and the measurements that they needed."""
        updates = self.updates
        mine = {spec.name for spec in self.manifest.memory if spec.role == "optimizer"}
        mine |= {spec.name for spec in self.manifest.accumulators if spec.slot is not None and not is_share(spec)}
        if updates:
            results = [key for call in updates for key in call.results]
            moved = {key.removeprefix("updated.param.") for key in results if key.startswith("updated.param.")}
            # Others are moved by the model itself.
            mine |= {STEP, *moved, *self.written()}
        names = {spec.name.split(".")[1] for spec in self.manifest.hyperparameters if spec.name.count(".") > 1}
        rates = {"lr", *(f"lr_{name}" for name in names)} if updates else set()
        return {
            port
            for port in self.signature.outputs
            if port.tensor in mine or (port.kind == "metric" and port.name in rates)
        }

    def without(self, removed: set[GraphOutput]) -> list[GraphOutput]:
        """The outputs that stay, in order."""
        return [port for port in self.signature.outputs if port not in removed]

    def describe(self, value: ir.Value, parameter: str, *, flat: bool = False) -> None:
        """Write down type and shape of what belongs to a parameter: results of functions have none by themselves."""
        spec = self.parameters[parameter]
        if value.dtype is None:
            value.type = ir.TensorType(ir.DataType.from_numpy(np.dtype(spec.dtype)))
        value.shape = ir.Shape([int(np.prod(spec.shape))] if flat else spec.shape)
