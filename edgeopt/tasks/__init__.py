"""What people train models for: losses, metrics, optimizer, schedule and groups that go together."""

from __future__ import annotations

from edgeopt.tasks.base import Recipe, Task
from edgeopt.tasks.classification import ImageClassification, TextClassification, TokenClassification
from edgeopt.tasks.embeddings import MetricLearning
from edgeopt.tasks.registry import TASK, TASKS
from edgeopt.tasks.regression import Regression
from edgeopt.tasks.sequences import SequenceToSequence

__all__ = [
    "TASK",
    "TASKS",
    "ImageClassification",
    "MetricLearning",
    "Recipe",
    "Regression",
    "SequenceToSequence",
    "Task",
    "TextClassification",
    "TokenClassification",
]
