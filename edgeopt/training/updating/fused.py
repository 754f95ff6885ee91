"""Operations that are one node with a portable body.

Each is a call of a model-local function in the domain `edgeopt`. Any runtime inlines the plain body; a runtime that has
a native kernel of that name runs the kernel instead.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeAlias

import onnx_ir as ir

from edgeopt.optimizers import Optimizer
from edgeopt.tracing import Array, Tracer, trace_function

__all__ = ["Functions", "static_flags"]

Flag: TypeAlias = "int | float | str"


class Functions:
    """The functions of one graph, each under a name of its own."""

    def __init__(self) -> None:
        self.by_name: dict[str, ir.Function] = {}
        self._calls: Counter[str] = Counter()

    def call(
        self,
        tracer: Tracer,
        name: str,
        inputs: Mapping[str, Array],
        body: Callable[[dict[str, Array]], Mapping[str, Array]],
        attributes: Mapping[str, Flag] | None = None,
    ) -> dict[str, Array]:
        """Record `body` as a function and call it.

        Args:
            tracer: Records the call.
            name: The operation; a second one of the same name in a graph gets a number.
            inputs: The operands by their names inside the function. Those that the body does not use are left out.
            body: An array program from the operands to the results, both by name; without results there is no call.
            attributes: Written on the node for native kernels; the plain body has them built in.

        Returns:
            The results by name, as arrays of the calling graph.
        """
        flags = dict(attributes or {})
        while (unique := f"{name}_{self._calls[name] + 1}" if self._calls[name] else name) in self.by_name:
            self._calls[name] += 1
        signature = {key: (array.dtype, array.shape) for key, array in inputs.items()}
        function = trace_function(unique, signature, body, tuple(flags))
        if not function.outputs:
            return {}
        self._calls[name] += 1
        used = [value for value in function.inputs if value.uses()]
        for value in [value for value in function.inputs if not value.uses()]:
            function.inputs.remove(value)
        self.by_name[unique] = function
        names = [value.name or "" for value in function.outputs]
        with tracer.scope(unique):
            results = tracer.call(function, [inputs[value.name or ""] for value in used], names, flags)
        return dict(zip(names, results, strict=True))


def static_flags(settings: object) -> dict[str, Flag]:
    """The fields of a rule that decide what its body looks like: flags, names of variants, numbers that are fixed.

    Those of a rule within the rule are prefixed with the field that holds it; that field itself says the class.
    """
    flags: dict[str, Flag] = {}
    for field in dataclasses.fields(settings) if dataclasses.is_dataclass(settings) else ():
        value = getattr(settings, field.name)
        if isinstance(value, (bool, str)):
            flags[field.name] = int(value) if isinstance(value, bool) else value
        elif field.metadata.get("static") and isinstance(value, (int, float)):
            flags[field.name] = value
        elif isinstance(value, Optimizer):
            flags[field.name] = type(value).__name__
            flags.update({f"{field.name}_{name}": flag for name, flag in static_flags(value).items()})
    return flags
