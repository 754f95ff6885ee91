"""Learning from another model's scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from edgeopt.array_types import Array, Namespace
from edgeopt.checks import positive
from edgeopt.errors import SignatureError
from edgeopt.losses.base import ArraySpec, Each, Expectation, Loss
from edgeopt.losses.classes import find_classes
from edgeopt.losses.numerics import log_softmax

__all__ = ["Distillation"]


@dataclass(frozen=True)
class Distillation(Loss):
    """T²·KL(softmax(t/T) ‖ softmax(x/T)), averaged over positions: x are the student's scores, t the teacher's.

    Hinton, Vinyals and Dean 2015, arXiv:1503.02531, section 2: the factor T² keeps gradients at the size that they have
    at T = 1, so that labels may be mixed in: `Distillation(output="student", teacher="teacher") +
    0.5 * CrossEntropy(output="student")`. Both are outputs of one model, the teacher's parameters frozen; no gradient
    goes its way in any case. Same as `torch.nn.functional.kl_div` of the two, `reduction="batchmean"`, times T².

    Raises:
        ConfigurationError: A temperature that is not positive.
        SignatureError: Outputs of different shapes, or without the class axis.
    """

    expects: ClassVar[Expectation] = "scores"

    temperature: float = 2.0
    class_axis: int = 1
    teacher: str = field(default="teacher", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("temperature", self.temperature)

    def outputs(self) -> tuple[str | None, ...]:
        """Return the names of the student's scores and the teacher's."""
        return (self.output, self.teacher)

    def targets(self, prediction: ArraySpec, *others: ArraySpec) -> tuple[ArraySpec, ...]:
        """Return no target: the teacher is one."""
        found = {find_classes("Distillation", each.shape, self.class_axis, None) for each in (prediction, *others)}
        if len(found) > 1:
            shapes = " and ".join(f"{each.name!r} has {each.shape}" for each in (prediction, *others))
            raise SignatureError(f"Distillation compares scores of the same classes, but {shapes}")
        return ()

    def each(self, xp: Namespace, prediction: Array, *targets: Array) -> Each:
        """Return the positions' losses."""
        (teacher,) = targets
        axis = self.class_axis % prediction.ndim
        stopped = xp.stop_gradient(teacher) if hasattr(xp, "stop_gradient") else teacher
        log_teacher = log_softmax(xp, stopped / self.temperature, axis)
        log_student = log_softmax(xp, prediction / self.temperature, axis)
        divergence = xp.sum(xp.exp(log_teacher) * (log_teacher - log_student), axis=axis)
        return Each(self.temperature**2 * divergence)
