"""Everything the SDK raises on purpose.

::

    EdgeoptError                         (edgeopt_runtime.errors; codes are shared by every language)
    └── ExportError                      the training step could not be made
        ├── TracingError                 an array program used something that cannot become ONNX
        ├── UnsupportedOperatorError     operators without a gradient rule, all of them at once
        ├── UnsupportedModelError        a module or file that cannot be made a graph for training
        ├── ParameterPatternError        a `trainable` pattern matches no parameter
        ├── SignatureError               names, shapes or dtypes of inputs, outputs or targets do not fit together
        ├── GradientCheckError           a gradient differs from its finite difference
        ├── ConfigurationError           an optimizer, schedule, transform or loss was given an impossible setting
        ├── ExportDifferenceError        an exported graph computes something else than the model it came from
        └── MemoryBudgetError            no way to train fits into the memory that it may take

    ExportWarning                        a guess, or something that may be other than what was meant
"""

from __future__ import annotations

from collections.abc import Sequence

from edgeopt_runtime.errors import EdgeoptError

__all__ = [
    "ConfigurationError",
    "EdgeoptError",
    "ExportDifferenceError",
    "ExportError",
    "ExportWarning",
    "GradientCheckError",
    "MemoryBudgetError",
    "ParameterPatternError",
    "SignatureError",
    "TracingError",
    "UnsupportedModelError",
    "UnsupportedOperatorError",
]


class ExportError(EdgeoptError):
    """The training step could not be made from this model and these settings."""

    code = "E200"


class TracingError(ExportError):
    """An array program asked for something that has no ONNX equivalent."""

    code = "E201"


class UnsupportedOperatorError(ExportError):
    """Operators on the path from the loss to a trainable parameter have no gradient rule.

    Args:
        problems: One line for each operator: its type, the node names, the reason and, where there is one, the
            alternative.
    """

    code = "E202"

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        listing = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(
            f"{len(self.problems)} operator(s) between the loss and a trainable parameter cannot be differentiated:\n"
            f"{listing}\n"
            "Freeze the parameters in front of them with `trainable=...`, or rewrite that part of the model."
        )


class UnsupportedModelError(ExportError):
    """The module or file cannot be made a graph for training: its exporter fails, or it holds what no graph can say."""

    code = "E203"


class ParameterPatternError(ExportError):
    """A pattern given to `trainable` matches no parameter of the model."""

    code = "E204"


class SignatureError(ExportError):
    """Inputs, outputs and targets do not fit together."""

    code = "E205"


class GradientCheckError(ExportError):
    """An exported gradient differs from its central difference."""

    code = "E206"


class ConfigurationError(ExportError):
    """An optimizer, schedule, transform, loss or metric was given a setting that makes no sense."""

    code = "E207"


class ExportDifferenceError(ExportError):
    """An exported graph computes something else than the model it came from, by more than rounding.

    Attributes:
        differences: One line for each output, buffer or gradient that differs.
    """

    code = "E208"

    def __init__(self, message: str, differences: Sequence[str]) -> None:
        super().__init__(message)
        self.differences = tuple(differences)


class MemoryBudgetError(ExportError):
    """No way to train fits into the memory that it may take.

    Attributes:
        needed_mib: What the leanest way takes.
    """

    code = "E209"

    def __init__(self, message: str, needed_mib: int) -> None:
        super().__init__(message)
        self.needed_mib = needed_mib


class ExportWarning(UserWarning):
    """The export rests on a guess, or does something that may be other than what was meant; it names what."""
