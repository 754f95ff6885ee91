"""Training in a notebook that a kernel runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbclient
import nbformat
import torch

import edgeopt

CELL = """
import numpy as np
from edgeopt_runtime import TrainingSession

session = TrainingSession.load("regression.edgeopt")
x = np.ones((8, 4), np.float32)
history = session.fit([(x, x[:, :1])] * 5, epochs=2)
session
"""


def test_a_notebook_shows_the_line_and_the_session(tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    bundle = edgeopt.export(
        torch.nn.Linear(4, 1), torch.zeros(2, 4), loss="mse", optimizer="sgd:lr=0.05", verbose=False
    )
    bundle.save(tmp_path / "regression.edgeopt")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = notebook.cells[0].outputs
    line = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stderr")
    # nbclient keeps what a browser would show of a line that is written over.
    assert "epoch 1/2 [========================] 5/5" in line
    assert "epoch 2/2 [========================] 5/5" in line
    shown = next(output for output in outputs if output.output_type == "execute_result")
    assert "TrainingSession(parameters: 2" in shown.data["text/plain"]
