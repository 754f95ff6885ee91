"""From sequences to sequences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from edgeopt.checks import fraction
from edgeopt.losses import CrossEntropy
from edgeopt.metrics import Accuracy, Perplexity
from edgeopt.schedules import WarmupLinear
from edgeopt.tasks.base import Recipe, Task

__all__ = ["SequenceToSequence"]


@dataclass(frozen=True)
class SequenceToSequence(Task):
    """Logits of shape (sequences, tokens, vocabulary), int64 labels of shape (sequences, tokens); -100 counts nothing.

    Label smoothing 0.1 (Vaswani et al., arXiv:1706.03762, section 5.4). The perplexity that is reported knows nothing
    of it. Labels are what the decoder is to say next: the model, or whoever makes the batch, shifts them.

    Rate 5e-5, the default of transformers' `Seq2SeqTrainingArguments`, with a straight fall after the warm-up.
    """

    name: ClassVar[str] = "sequence_to_sequence"

    label_smoothing: float = field(default=0.1, kw_only=True)
    lr: float = field(default=5e-5, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction("label_smoothing", self.label_smoothing)

    def recipe(self) -> Recipe:
        """See `Task`."""
        loss = CrossEntropy(label_smoothing=self.label_smoothing, class_axis=-1, output=self.output, target=self.target)
        return self.made_of(loss, Perplexity(class_axis=-1), Accuracy(class_axis=-1), falling=WarmupLinear)
