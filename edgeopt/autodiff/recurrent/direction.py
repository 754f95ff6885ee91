"""The directions of an LSTM, GRU or RNN, each with its part of the weights.

Inside, time is the first axis and the batch the second, whatever the node's layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from edgeopt import tracing as xp
from edgeopt.autodiff.recurrent.activations import ACTIVATIONS, BoundActivation
from edgeopt.tracing import Array, op
from edgeopt.tracing.shapes import is_static
from edgeopt.tracing.site import Site

__all__ = ["Direction", "activation_names", "activation_parameters", "directions_of", "recurrent_problem"]

_DEFAULTS = {"GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh"), "RNN": ("Tanh",)}
# The first two activations of a direction are those of its gates.
_GATES_FIRST = 2


@dataclass(frozen=True)
class Direction:
    """One direction of a recurrent node.

    Attributes:
        n: The node.
        index: Which of its directions.
        backwards: Whether time runs backwards.
        activations: Of gates, cell and output, as far as the cell has them.
    """

    n: Site
    index: int
    backwards: bool
    activations: tuple[BoundActivation, ...]

    def part(self, array: Array) -> Array:
        """This direction's part of weights and the like, whose first axis holds the directions."""
        return self._at(array, 0)

    def states(self, array: Array) -> Array:
        """This direction's part of an output of all steps, (time, batch, hidden)."""
        if self.n.attr("layout", 0):
            array = op.Transpose(array, perm=[1, 2, 0, 3])
        return self._at(array, 1)

    def state(self, array: Array) -> Array:
        """This direction's part of initial or last states, (batch, hidden)."""
        return self._at(array, 1 if self.n.attr("layout", 0) else 0)

    def _at(self, array: Array, axis: int) -> Array:
        if array.shape[axis] == 1:
            return op.Squeeze(array, [axis])
        return op.Gather(array, np.int64(self.index), axis=axis)

    @cached_property
    def x(self) -> Array:
        """(time, batch, features)."""
        return op.Transpose(self.n.x, perm=[1, 0, 2]) if self.n.attr("layout", 0) else self.n.x

    @cached_property
    def w(self) -> Array:
        """(gates · hidden, features)."""
        return self.part(self.n.input(1))

    @cached_property
    def r(self) -> Array:
        """(gates · hidden, hidden)."""
        return self.part(self.n.input(2))

    @cached_property
    def biases(self) -> tuple[Array, Array] | None:
        """Of input and recurrence, (gates · hidden) each."""
        if not self.n.has(3):
            return None
        first, second = self.n.tracer.emit("Split", self.part(self.n.input(3)), axis=0, num_outputs=2, outputs=2)
        return first, second

    @cached_property
    def bias(self) -> Array | None:
        """The sum of both biases."""
        return None if self.biases is None else self.biases[0] + self.biases[1]

    @cached_property
    def hidden(self) -> int:
        """The width of the state."""
        return int(self.n.input(2).shape[-1])  # type: ignore[arg-type]  # `recurrent_problem` has seen that it is known

    def rows(self, array: Array) -> Array:
        """(time, batch, …) as (time · batch, …)."""
        return op.Reshape(array, [-1, int(array.shape[-1])])  # type: ignore[arg-type]  # widths are known

    def steps(self, rows: Array) -> Array:
        """(time · batch, …) as (time, batch, …)."""
        time, batch, width = self.x.shape[0], self.x.shape[1], rows.shape[-1]
        target: Any
        if isinstance(batch, int):
            target = [-1, batch, width]
        elif isinstance(time, int):
            target = [time, -1, width]
        else:
            target = op.Concat(op.Shape(self.x, end=2), np.asarray([width], np.int64), axis=0)
        return op.Reshape(rows, target).with_shape((time, batch, width))

    def zeros(self) -> Array:
        """An initial state, (batch, hidden)."""
        batch = self.x.shape[1]
        if isinstance(batch, int):
            return self.n.tracer.constant(np.zeros((batch, self.hidden), self.x.dtype))
        shape = op.Concat(op.Shape(self.x, start=1, end=2), np.asarray([self.hidden], np.int64), axis=0)
        return op.Expand(np.zeros((1, 1), self.x.dtype), shape).with_shape((batch, self.hidden))

    def initial(self, position: int) -> Array:
        """An initial state, zero where the node has none."""
        return self.state(self.n.input(position)) if self.n.has(position) else self.zeros()

    @cached_property
    def mask(self) -> Array | None:
        """(time, batch, 1), one where a sequence has not ended and zero behind."""
        if not self.n.has(4):
            return None
        return xp.astype(self._times() < self._lengths(), self.x.dtype)

    def last(self, states: Array) -> Array:
        """States after the last step as ONNX Runtime gives them: zero for a sequence without any."""
        if not self.n.has(4):
            return states
        return states * xp.astype(op.Reshape(self.n.input(4), [-1, 1]) > np.int32(0), self.x.dtype)

    def _times(self) -> Array:
        constant = self.n.tracer.constant
        length = self.x.shape[0]
        if isinstance(length, int):
            return constant(np.arange(length, dtype=np.int32).reshape(-1, 1, 1))
        count = xp.astype(op.Squeeze(op.Shape(self.x, end=1), [0]), np.int32)
        return op.Reshape(op.Range(constant(np.int32(0)), count, constant(np.int32(1))), [-1, 1, 1])

    def _lengths(self) -> Array:
        return op.Reshape(self.n.input(4), [1, -1, 1])

    def before(self, states: Array, position: int) -> Array:
        """The states that the steps began with, from those that they ended with and the initial one, an input."""
        initial = self.initial(position)
        shifted = self.shifted(states, initial)
        if self.mask is None or not self.backwards or not self.n.has(position):
            return shifted
        # Behind its end a sequence's output is zero, but its last step began with the initial state.
        goes_on = self._times() + np.int32(1) < self._lengths()
        return op.Where(goes_on, shifted, op.Unsqueeze(initial, [0])).with_shape(states.shape)

    def shifted(self, states: Array, initial: Array) -> Array:
        """What was there one step before, in this direction's order."""
        first = op.Unsqueeze(initial, [0])
        if self.backwards:
            joined = op.Concat(op.Slice(states, [1], [np.iinfo(np.int64).max], [0]), first, axis=0)
        else:
            joined = op.Concat(first, op.Slice(states, [0], [-1], [0]), axis=0)
        return joined.with_shape(states.shape)


def directions_of(n: Site) -> list[Direction]:
    """The directions of an LSTM, GRU or RNN."""
    which = n.attr("direction", "forward")
    count = 2 if which == "bidirectional" else 1
    kinds = [ACTIVATIONS[name.lower()] for name in activation_names(n)]
    alphas, betas = (iter(numbers) for numbers in activation_parameters(n))
    each = len(kinds) // count
    bound = []
    for position, kind in enumerate(kinds):
        alpha = 0.0 if kind.alpha is None else next(alphas)
        beta = 0.0 if kind.beta is None else next(betas)
        # The gates' arguments are clipped, the cell that an LSTM shows is not.
        clip = float(n.attr("clip", 0.0)) if position % each < _GATES_FIRST else 0.0
        bound.append(BoundActivation(kind, alpha, beta, clip or None))
    return [
        Direction(n, i, which == "reverse" or i == 1, tuple(bound[i * each : (i + 1) * each])) for i in range(count)
    ]


def activation_names(n: Site) -> list[str]:
    """The activations of all directions; the standard's own default for RNN names one too many."""
    count = 2 if n.attr("direction", "forward") == "bidirectional" else 1
    defaults = _DEFAULTS[n.node.op_type] * count
    return list(n.attr("activations") or defaults)[: len(defaults)]


def activation_parameters(n: Site) -> tuple[list[float], list[float]]:
    """Alphas and betas, in order for those activations that have one; the standard's where the node leaves them out."""
    kinds = [ACTIVATIONS[name.lower()] for name in activation_names(n)]
    defaults = [kind.alpha for kind in kinds if kind.alpha is not None], [k.beta for k in kinds if k.beta is not None]
    given = [float(a) for a in n.attr("activation_alpha") or ()], [float(b) for b in n.attr("activation_beta") or ()]
    alphas, betas = ([*own, *others[len(own) :]] for own, others in zip(given, defaults, strict=True))
    return alphas, betas


def recurrent_problem(n: Site) -> str | None:
    """What the rules cannot treat."""
    unknown = [name for name in n.attr("activations") or () if name.lower() not in ACTIVATIONS]
    if unknown:
        return f"its activations {unknown} are not in the standard"
    widths = [n.input(1).shape[-1], *n.input(2).shape]
    return None if is_static(widths) else "the shape of its weights is not known"
