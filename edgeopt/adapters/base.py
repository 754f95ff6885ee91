"""What every adapter provides: which layers it goes beside, its parameters, and what it makes of a layer's result."""

from __future__ import annotations

import fnmatch
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edgeopt.adapters.layers import Layer
from edgeopt.adapters.place import Place
from edgeopt.arguments import Component
from edgeopt.array_types import Array, Namespace
from edgeopt.errors import ParameterPatternError
from edgeopt.optimizers import Group
from edgeopt.training.forward import ForwardModel

__all__ = ["Adapter", "LayerAdapter", "Selection", "matches"]

NumpyArray = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Adapter(metaclass=Component):
    """Which of a model's numbers move, where the model itself stays as it is. See `LayerAdapter` and `Selection`."""

    #: Its name in the registry and in manifests.
    kind: ClassVar[str]

    def groups(self, names: Sequence[str]) -> tuple[Group, ...]:
        """Settings of the optimizer for some of the parameters that train; none by default."""
        return ()

    def steady(self) -> Adapter:
        """The same without random numbers, to be compared with something else."""
        return self

    @abstractmethod
    def config(self, layers: Sequence[Layer]) -> dict[str, Any]:
        """What `adapter_config.json` says, in the words of PEFT where it has this adapter."""


@dataclass(frozen=True)
class Selection(Adapter):
    """Some parameters of the model train, and the others stay: nothing is added."""

    @abstractmethod
    def select(self, model: ForwardModel) -> list[str]:
        """Names of the parameters that train.

        Raises `ParameterPatternError` if there are none.
        """


class LayerAdapter(Adapter):
    """New parameters beside the layers whose weights stay.

    `targets` are patterns of the weights' or their modules' names, one or several: `"*.query"`, or as in PEFT the end
    of a module's name, `"query"`. None stands for every linear layer but the last, and in a model that has no other
    linear layer for its convolutions.

    What `forward` computes with traced arrays and what `merged` does to the weight are the same function.
    """

    targets: str | Sequence[str] | None

    def choose(self, layers: Sequence[Layer]) -> list[Layer]:
        """The layers that it goes beside.

        Raises:
            ParameterPatternError: A pattern matches none.
        """
        if self.targets is None:
            inner = [layer for layer in layers if not layer.last and self.refuses(layer) is None]
            linear = [layer for layer in inner if layer.kind == "linear"]
            chosen = linear or [layer for layer in inner if layer.kind == "convolution"]
            if not chosen:
                raise ParameterPatternError(
                    f"{type(self).__name__} finds no linear layer and no convolution before the last layer; name the "
                    f"weights: targets=... The layers are {_listed(layers)}."
                )
            return chosen
        wanted = (self.targets,) if isinstance(self.targets, str) else tuple(self.targets)
        for pattern in wanted:
            if not any(matches(layer, pattern) for layer in layers):
                raise ParameterPatternError(
                    f"{type(self).__name__}: {pattern!r} matches no layer. The layers are {_listed(layers)}."
                )
        chosen = [layer for layer in layers if any(matches(layer, pattern) for pattern in wanted)]
        for layer in chosen:
            if (why := self.refuses(layer)) is not None:
                raise ParameterPatternError(f"{type(self).__name__} cannot go beside {layer.module!r}: {why}.")
        return chosen

    def refuses(self, layer: Layer) -> str | None:
        """Why it cannot go beside a layer; None if it can."""
        return None

    def settled(self, layers: Sequence[Layer], weights: Mapping[str, NumpyArray]) -> LayerAdapter:
        """The same with what depends on all of its layers; it chooses among these anew.

        Args:
            layers: What `choose` gave.
            weights: Each weight, (out, in, *kernel), by name.
        """
        return self

    @abstractmethod
    def parameters(self, layer: Layer, weight: NumpyArray, random: np.random.Generator) -> dict[str, NumpyArray]:
        """The new parameters of a layer, by the end of their names; at their first values the model is what it was.

        Args:
            layer: The layer.
            weight: Its weight, (out, in, *kernel).
            random: Where random first values come from.
        """

    @abstractmethod
    def forward(self, xp: Namespace, place: Place, own: Mapping[str, Array]) -> Array:
        """What takes the place of the layer's result."""

    @abstractmethod
    def merged(
        self, xp: Namespace, layer: Layer, weight: Array, bias: Array | None, own: Mapping[str, Array]
    ) -> tuple[Array, Array | None]:
        """The weight (out, in, *kernel) and the bias with which the plain layer gives the same.

        The arrays may be of any library. A bias that comes out as the very object that went in is unchanged.
        """


def matches(layer: Layer, pattern: str) -> bool:
    """Whether a pattern means a layer: by the name of the weight or of the module, or by the end of the latter."""
    names = (layer.weight, layer.module)
    return any(fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"*.{pattern}") for name in names)


def _listed(layers: Sequence[Layer], most: int = 12) -> str:
    names = [f"{layer.module} ({layer.kind})" for layer in layers]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}" if names else "none"
