"""Classes of images, texts and tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from edgeopt.checks import fraction, require
from edgeopt.losses import BCEWithLogits, CrossEntropy, Loss
from edgeopt.metrics import F1, Accuracy, Metric, TopKAccuracy
from edgeopt.schedules import WarmupLinear
from edgeopt.tasks.base import Recipe, Task

__all__ = ["ImageClassification", "TextClassification", "TokenClassification"]

# From so many classes on the label's place among the first five says something.
TOP_5 = 10


@dataclass(frozen=True)
class Classification(Task):
    """A task with `classes` classes, of which each sample has one, or with `multi_label` any number."""

    classes: int
    multi_label: bool = field(default=False, kw_only=True)
    label_smoothing: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        least = 1 if self.multi_label else 2
        require(
            isinstance(self.classes, int) and self.classes >= least,
            f"classes must be a whole number from {least}, got {self.classes!r}",
        )
        fraction("label_smoothing", self.label_smoothing)
        require(
            not (self.multi_label and self.label_smoothing),
            "label_smoothing is for classes that exclude each other, not for multi_label",
        )

    def _loss(self, **places: Any) -> Loss:
        """The loss of such labels."""
        names: dict[str, Any] = {"output": self.output, "target": self.target, **places}
        return BCEWithLogits(**names) if self.multi_label else CrossEntropy(None, self.label_smoothing, **names)

    def _metrics(self, **places: Any) -> tuple[Metric, ...]:
        """What is reported of such labels."""
        if self.multi_label:
            return (F1("macro"), F1("micro", label="f1_micro"))
        found: tuple[Metric, ...] = (Accuracy(**places), F1("macro", **places))
        return (*found, TopKAccuracy(5, **places)) if self.classes >= TOP_5 else found


@dataclass(frozen=True)
class ImageClassification(Classification):
    """Logits of shape (images, classes); int64 labels, or with `multi_label` 0 and 1 in the shape of the logits.

    Label smoothing 0.1 (Szegedy et al., arXiv:1512.00567), decay 0.05 and half a cosine after the warm-up (He et al.,
    arXiv:1812.01187; Liu et al., arXiv:2201.03545, section A.1). The rate is for a new head, or for all weights of a
    small network; all weights of a large one want a tenth of it.
    """

    name: ClassVar[str] = "image_classification"

    lr: float = field(default=1e-3, kw_only=True)
    weight_decay: float = field(default=0.05, kw_only=True)
    label_smoothing: float = field(default=0.1, kw_only=True)

    def __post_init__(self) -> None:
        if self.multi_label and self.label_smoothing == type(self).label_smoothing:
            object.__setattr__(self, "label_smoothing", 0.0)
        super().__post_init__()

    def recipe(self) -> Recipe:
        """See `Task`."""
        return self.made_of(self._loss(), *self._metrics())


@dataclass(frozen=True)
class TextClassification(Classification):
    """Logits of shape (texts, classes); int64 labels, or with `multi_label` 0 and 1 in the shape of the logits.

    The settings of BERT's fine-tuning (Devlin et al., arXiv:1810.04805, appendix A.3 and its code): rate 2e-5, decay
    0.01, a straight fall after a warm-up of a tenth. Adapters want ten times the rate.
    """

    name: ClassVar[str] = "text_classification"

    lr: float = field(default=2e-5, kw_only=True)

    def recipe(self) -> Recipe:
        """See `Task`."""
        return self.made_of(self._loss(), *self._metrics(), falling=WarmupLinear)


@dataclass(frozen=True)
class TokenClassification(Classification):
    """Logits of shape (texts, tokens, classes), and int64 labels of shape (texts, tokens); -100 counts nothing.

    As `TextClassification`, at the rate 5e-5. Pieces of words after the first, and padding, are labelled -100.
    """

    name: ClassVar[str] = "token_classification"

    lr: float = field(default=5e-5, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(not self.multi_label, "multi_label is for images and whole texts")

    def recipe(self) -> Recipe:
        """See `Task`."""
        return self.made_of(self._loss(class_axis=-1), *self._metrics(class_axis=-1), falling=WarmupLinear)
