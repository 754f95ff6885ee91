"""Batches as the package `datasets` makes them, and as `DataLoader` does over one of its tables."""

from __future__ import annotations

import warnings
from typing import Any

import datasets
import numpy as np
import pytest
import torch

import edgeopt
from edgeopt_runtime import BatchError, TrainingSession

ROWS = 24


class Text(torch.nn.Module):
    """A bag of words; called as transformers call their models."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 3)

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        weights = attention_mask.unsqueeze(-1).to(torch.float32)
        return self.head((self.embed(input_ids) * weights).sum(1) / weights.sum(1))


@pytest.fixture(scope="module")
def table() -> datasets.Dataset:
    rng = np.random.default_rng(0)
    mask = np.arange(6) < rng.integers(2, 7, (ROWS, 1))
    return datasets.Dataset.from_dict(
        {
            "text": [f"sentence {row}" for row in range(ROWS)],
            "input_ids": np.where(mask, rng.integers(1, 20, (ROWS, 6)), 0).tolist(),
            "attention_mask": mask.astype(np.int8).tolist(),
            "labels": rng.integers(0, 3, ROWS).tolist(),
        }
    )


@pytest.fixture(scope="module")
def bundle() -> edgeopt.Bundle:
    torch.manual_seed(0)
    example = {"input_ids": torch.ones(2, 6, dtype=torch.int64), "attention_mask": torch.ones(2, 6, dtype=torch.int64)}
    loss = edgeopt.losses.CrossEntropy(target="labels")
    return edgeopt.export(Text(), example, loss=loss, optimizer="sgd:lr=0.1", verbose=False)


def train(session: TrainingSession, batches: Any) -> list[float]:
    return [metrics["loss"] for metrics in session.fit(batches, epochs=1, progress=False).steps]


def formats(table: datasets.Dataset) -> dict[str, Any]:
    tensors = table.remove_columns("text").with_format("torch")
    return {
        "lists": list(table.remove_columns("text").iter(batch_size=8)),
        "numpy": table.remove_columns("text").with_format("numpy").iter(batch_size=8),
        "torch": tensors.iter(batch_size=8),
        "a DataLoader": torch.utils.data.DataLoader(tensors, batch_size=8),
        "a streamed table": table.remove_columns("text").to_iterable_dataset().with_format("numpy").iter(batch_size=8),
    }


def test_every_format_trains_alike(bundle: edgeopt.Bundle, table: datasets.Dataset) -> None:
    losses = {}
    for name, batches in formats(table).items():
        session = bundle.session()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            losses[name] = train(session, batches)
    assert len(losses["torch"]) == 3
    assert all(each == losses["torch"] for each in losses.values()), losses


def test_columns_that_nothing_takes_are_said_once(bundle: edgeopt.Bundle, table: datasets.Dataset) -> None:
    with pytest.warns(UserWarning, match="holds `text`, which nothing here takes") as said:
        train(bundle.session(), table.iter(batch_size=8))
    assert len(said) == 1


def test_a_column_by_another_name_is_asked_about(bundle: edgeopt.Bundle, table: datasets.Dataset) -> None:
    renamed = table.rename_column("labels", "label")
    with pytest.raises(BatchError, match=r"lacks the input `labels`. Is it `label`\?"):
        train(bundle.session(), renamed.iter(batch_size=8))


def test_rows_that_were_not_padded_are_refused_by_name(bundle: edgeopt.Bundle, table: datasets.Dataset) -> None:
    ragged = table.remove_columns("text").map(lambda row: {"input_ids": row["input_ids"][: 3 + row["labels"]]})
    with pytest.raises(BatchError, match="`input_ids` cannot be read as an array"):
        train(bundle.session(), ragged.iter(batch_size=8))
