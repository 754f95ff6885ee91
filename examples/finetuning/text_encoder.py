"""A text encoder learns to tell praise from blame: all of it, or adapters beside weights that stay, in fewer bits.

The encoder is all-MiniLM-L6-v2, 22.7 million parameters, as a package ships it. The sentences are from film reviews,
each judged by twenty people (Hutto and Gilbert, ICWSM 2014). LoRA trains 0.3 million numbers beside weights that stay,
which are stored as they are, in 8 bits, or in 4 (QLoRA); all of it runs on stock ONNX Runtime.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn
from transformers import BertConfig, BertModel

import edgeopt
from edgeopt_runtime import TrainingSession
from finetuning.files import packaged
from finetuning.results import Array, Figures, Result, learning_curve, save_figure, shuffled

TOKENS = 40
#: Name, adapters, how frozen weights are stored, and the learning rate.
WAYS: tuple[tuple[str, bool, Any, float], ...] = (
    ("all weights", False, "float32", 1e-4),
    ("LoRA, float32", True, "float32", 2e-3),
    ("LoRA, int8", True, "int8", 2e-3),
    ("LoRA, 4 bits", True, "nf4", 2e-3),
)


class Judge(nn.Module):
    """The encoder, the mean over tokens, and two scores."""

    def __init__(self) -> None:
        super().__init__()
        config = BertConfig(**json.loads(packaged("minilm_l6_config.json").read_text()), attn_implementation="eager")
        self.encoder = BertModel(config, add_pooling_layer=False)
        weights = load_file(packaged("minilm_l6.safetensors"))
        self.encoder.load_state_dict(
            {name: value for name, value in weights.items() if "pooler" not in name}, strict=False
        )
        self.judge = nn.Linear(config.hidden_size, 2)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Scores of blame and praise."""
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(states.dtype)
        scores: torch.Tensor = self.judge((states * mask).sum(dim=1) / mask.sum(dim=1))
        return scores


def sentences(count: int, held_out: int) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Tokens, mask and label of each sentence on which people agreed; to train on, and held out."""
    with tarfile.open(packaged("reviews.tar.gz")) as tar:
        member = next(name for name in tar.getnames() if name.endswith("movieReviewSnippets_GroundTruth.txt"))
        file = tar.extractfile(member)
        assert file is not None
        rows = [line.split("\t") for line in file.read().decode("latin-1").splitlines()]
    judged = [(float(score), text) for _, score, text in rows if abs(float(score)) > 0.5]
    order = np.random.default_rng(0).permutation(len(judged))[: count + held_out]
    tokenizer = Tokenizer.from_file(str(packaged("minilm_l6_tokenizer.json")))
    tokenizer.enable_truncation(TOKENS)
    tokenizer.enable_padding(length=TOKENS)
    found = tokenizer.encode_batch([judged[place][1] for place in order])
    arrays = (
        np.asarray([each.ids for each in found], np.int64),
        np.asarray([each.attention_mask for each in found], np.int64),
        np.asarray([judged[place][0] > 0 for place in order], np.int64),
    )
    return tuple(array[:count] for array in arrays), tuple(array[count:] for array in arrays)


def export(adapters: bool, frozen_weights: Any, rate: float, steps: int) -> edgeopt.Bundle:
    """The training step of one way to do it."""
    torch.manual_seed(0)
    examples = (torch.randint(5, 1000, (2, TOKENS)), torch.ones(2, TOKENS, dtype=torch.int64))
    lora = edgeopt.adapters.LoRA(rank=8, alpha=16, targets=("query", "key", "value", "dense"))
    return edgeopt.export(
        Judge(),
        examples,
        loss="cross_entropy",
        optimizer=edgeopt.optimizers.AdamW(lr=edgeopt.schedules.WarmupCosine(rate, steps // 10 + 1, steps)),
        transforms=[edgeopt.transforms.ClipByGlobalNorm(1.0)],
        metrics="accuracy",
        adapters=(lora,) if adapters else (),
        trainable="judge.*" if adapters else None,
        frozen_weights=frozen_weights,
        verbose=False,
    )


def run(folder: Path, *, quick: bool = False) -> Result:
    """Train in every way; writes the bundles, the adapters and the picture into the folder."""
    train, test = sentences(128 if quick else 3000, 64 if quick else 1000)
    epochs, size = (1, 16) if quick else (2, 32)
    steps = epochs * (len(train[0]) // size)
    figures, curves = [], {}
    folder.mkdir(parents=True, exist_ok=True)
    for name, adapters, stored, rate in WAYS[1::2] if quick else WAYS:
        rng = np.random.default_rng(0)
        bundle = export(adapters, stored, rate, steps)
        session = bundle.session()
        before = accuracy(session, test)
        history = session.fit(lambda: shuffled(rng, size, *train), epochs=epochs, progress=False)  # noqa: B023  # used here
        curves[name] = [step["loss"] for step in history.steps]
        note = f"{training_state(bundle) / 1e6:.1f} MB of training state"
        place = folder / f"text_encoder_{stored}{'_lora' if adapters else ''}.edgeopt"
        session.save(place)
        peak = bundle.estimate(batch=size).peak / 2**20
        note += f", bundle {place.stat().st_size / 1e6:.0f} MB, foretold peak {peak:.0f} MiB"
        if adapters:
            session.save_adapters(folder / f"text_encoder_{stored}_adapters")
            files = (folder / f"text_encoder_{stored}_adapters").iterdir()
            note += f", adapters {sum(file.stat().st_size for file in files) / 1e6:.1f} MB"
        figures.append(Figures(name, before, accuracy(session, test), note))
    picture = draw(folder / "text_encoder.png", curves, figures)
    return Result("text encoder, all of it and with LoRA", "accuracy on held-out sentences", figures, picture)


def accuracy(session: TrainingSession, test: tuple[Array, ...]) -> float:
    """On held-out sentences."""
    batches = [tuple(array[start : start + 64] for array in test) for start in range(0, len(test[0]), 64)]
    return float(session.evaluate(batches)["accuracy"])


def training_state(bundle: edgeopt.Bundle) -> int:
    """Bytes that training adds to the weights: the optimizer's state, and the sums of gradients."""
    manifest = bundle.manifest
    return sum(
        spec.nbytes for spec in (*manifest.tensors, *manifest.accumulators) if spec.role in ("optimizer", "accumulator")
    )


def draw(path: Path, curves: dict[str, list[float]], figures: list[Figures]) -> Path:
    """The losses, and where each way ended."""
    figure = Figure(figsize=(10, 3.2 + 0.2 * len(curves)), layout="constrained")
    grid = figure.add_gridspec(1, len(curves) + 1)
    for place, (name, losses) in enumerate(curves.items()):
        learning_curve(figure, grid[place], losses, name)
    axes = figure.add_subplot(grid[len(curves)])
    bars = axes.bar([line.name.replace(" ", "\n") for line in figures], [100 * line.after for line in figures])
    axes.bar_label(bars, fmt="%.1f")
    axes.set_ylim(50, 100)
    axes.set_ylabel("held-out accuracy, %")
    axes.tick_params(axis="x", labelsize=7)
    return save_figure(figure, path)
