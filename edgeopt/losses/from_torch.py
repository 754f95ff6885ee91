"""A loss that is a module or a function of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgeopt.checks import require
from edgeopt.errors import SignatureError
from edgeopt.losses.base import ArraySpec, Loss

__all__ = ["FromTorch", "from_torch"]


@dataclass(frozen=True, eq=False)
class FromTorch(Loss):
    """A loss that `from_torch` makes.

    Attributes:
        function: The module or function.
        examples: The targets by name, each with an example.
        reads: The outputs, None for the default one.
        counted: The target among those that are counted.
        ignored: A label that is not counted.
    """

    function: Callable[..., Any]
    examples: Mapping[str, Any]
    reads: tuple[str | None, ...] = (None,)
    counted: str | None = None
    ignored: int = -100

    def outputs(self) -> tuple[str | None, ...]:
        """Return the names of the outputs."""
        return self.reads

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Raise `SignatureError`: an export puts a graph in its place."""
        raise SignatureError(
            "A loss of PyTorch becomes a graph together with its model, a torch.nn.Module. For an ONNX file, write the "
            "loss to a file, too (torch.onnx.export), and give edgeopt.losses.from_onnx(path)."
        )


def from_torch(
    loss: Callable[..., Any],
    targets: Mapping[str, Any],
    *,
    outputs: str | Sequence[str] | None = None,
    counted: str | None = None,
    ignored: int = -100,
    **settings: Any,
) -> FromTorch:
    """Make a loss of a `torch.nn.Module` or a function of tensors, `loss(*outputs, *targets)`.

    It is exported together with the model, a module too. Parameters of a loss module train with the model's, under the
    names `loss.NAME`. The export compares loss and gradients with PyTorch like everything else.

    It returns one number for each sample or position (`reduction="none"` of torch's own), of which the mean is taken,
    and accumulation is exact; or a single number, which is taken for the mean over the samples, as the export says.

    Args:
        loss: The module or function. In training it is in training mode, in evaluation in evaluation mode.
        targets: An example of each target, by the name that it has in a batch:
            `{"label": torch.zeros(2, dtype=torch.int64)}`, with as many samples as the example inputs. The loss gets
            them in this order, after the outputs.
        outputs: The names of the model's outputs that it reads, one or several; by default one, that which
            `edgeopt.export(output=...)` says.
        counted: With a single number: a target whose elements, but for those that are `ignored`, it is the mean over.
        ignored: The label that is not counted.
        settings: `reduction` and `sample_weight`, see `Loss`.

    Raises:
        ConfigurationError: It is no function, or there are no examples.
    """
    require(callable(loss) and not isinstance(loss, type), "loss must be a function or an instance of a module")
    require(isinstance(targets, Mapping), "targets must be examples by name: {'label': torch.zeros(2)}")
    require(counted is None or counted in targets, f"counted must be one of the targets {list(targets)}")
    reads = (None,) if outputs is None else (outputs,) if isinstance(outputs, str) else tuple(outputs)
    require(bool(reads), "outputs must name at least one output of the model")
    return FromTorch(loss, targets, reads, counted, ignored, **settings)
