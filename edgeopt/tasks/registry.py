"""Every task by name. The contract tests run over this table."""

from __future__ import annotations

from edgeopt.components import Kind
from edgeopt.tasks.base import Task
from edgeopt.tasks.classification import ImageClassification, TextClassification, TokenClassification
from edgeopt.tasks.embeddings import MetricLearning
from edgeopt.tasks.regression import Regression
from edgeopt.tasks.sequences import SequenceToSequence

__all__ = ["TASK", "TASKS"]

TASKS: dict[str, type[Task]] = {
    "image_classification": ImageClassification,
    "metric_learning": MetricLearning,
    "regression": Regression,
    "sequence_to_sequence": SequenceToSequence,
    "text_classification": TextClassification,
    "token_classification": TokenClassification,
}

# Names that Hugging Face has for them.
_ALIASES = {
    "contrastive": "metric_learning",
    "feature_extraction": "metric_learning",
    "ner": "token_classification",
    "seq2seq": "sequence_to_sequence",
    "sentiment_analysis": "text_classification",
    "sequence_classification": "text_classification",
    "summarization": "sequence_to_sequence",
    "text2text_generation": "sequence_to_sequence",
    "translation": "sequence_to_sequence",
}

TASK = Kind(
    name="task",
    base=Task,  # type: ignore[type-abstract]  # only instances of it are made
    registry=TASKS,
    example="edgeopt.tasks.ImageClassification(classes=10)",
    aliases=_ALIASES,
)
