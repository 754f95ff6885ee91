"""A new head for an image classifier that comes as an ONNX file, and then its last layers too.

The file is a part of PaddleOCR: a MobileNetV3 that tells whether a line of text stands upside down, so it has two
classes. Here it learns ten others, handwritten digits, from 400 of each: first a new head alone, on features that stay
as they are, then the last convolutions with it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import edgeopt
from edgeopt.cli.quickstart.digits import Digits, load_digits, split
from edgeopt_runtime import TrainingSession
from finetuning.files import packaged
from finetuning.results import Array, Figures, Result, learning_curve, save_figure, shuffled

CLASSES = 10
#: With the new head, its last blocks.
LAST_LAYERS = ("head.*", "conv_last_*", "conv1[012]_*")


def images(digits: Digits) -> Array:
    """Digits as the file wants images: three channels of 48 x 48 pixels, between -1 and 1."""
    padded = np.pad(digits.images, ((0, 0), (0, 0), (10, 10), (10, 10)))
    return np.repeat(2.0 * padded - 1.0, 3, axis=1).astype(np.float32)


def trained(
    session: TrainingSession, train: tuple[Array, Array], test: tuple[Array, Array], epochs: int
) -> tuple[list[float], float]:
    """Train a session; the losses, and the accuracy on held-out digits afterwards."""
    rng = np.random.default_rng(0)
    history = session.fit(lambda: shuffled(rng, 32, *train), epochs=epochs, progress=False)
    return [step["loss"] for step in history.steps], accuracy(session, test)


def accuracy(session: TrainingSession, test: tuple[Array, Array]) -> float:
    """On held-out digits."""
    return float(session.evaluate([test])["accuracy"])


def run(folder: Path, *, quick: bool = False) -> Result:
    """Train head and last layers; writes the bundles and the picture into the folder."""
    digits, held_out = split(load_digits(), 50 if quick else 100, 0)
    if quick:
        _, digits = split(digits, 40, 1)
    train, test = (images(digits), digits.labels), (images(held_out), held_out.labels)
    model = edgeopt.graph.replace_head(packaged("ppocr_mobile_v2_cls.onnx"), classes=CLASSES)
    figures, curves = [], {}
    session: TrainingSession | None = None
    for name, trainable, rate in (("new head", ("head.*",), 3e-2), ("last layers", LAST_LAYERS, 1e-3)):
        bundle = edgeopt.export(
            model,
            {"x": train[0][:2]},
            loss="cross_entropy",
            optimizer=f"adamw:lr={rate}",
            metrics="accuracy",
            trainable=trainable,
            verbose=False,
        )
        earlier, session = session, bundle.session()
        if earlier is not None:
            session.load_parameters(earlier.parameters())
        before = accuracy(session, test)
        losses, after = trained(session, train, test, epochs=2 if quick else 3)
        count = sum(int(np.prod(spec.shape)) for spec in bundle.manifest.tensors if spec.trainable)
        figures.append(Figures(name, before, after, f"{count:,} parameters train"))
        curves[name] = losses
    assert session is not None
    folder.mkdir(parents=True, exist_ok=True)
    session.save(folder / "image_classifier.edgeopt")
    session.export_inference(folder / "image_classifier.onnx")
    picture = draw(folder / "image_classifier.png", session, test, curves["last layers"])
    return Result("image classifier with a new head", "accuracy on held-out digits", figures, picture)


def draw(path: Path, session: TrainingSession, test: tuple[Array, Array], losses: list[float]) -> Path:
    """The loss, and some digits with what the model takes them for."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    grid = figure.add_gridspec(4, 10)
    learning_curve(figure, grid[:, :4], losses)
    predicted = np.asarray(session.predict(test[0][::41])).argmax(axis=1)
    for place, (image, label, found) in enumerate(zip(test[0][::41], test[1][::41], predicted, strict=True)):
        if place == 24:
            break
        axes = figure.add_subplot(grid[place // 6, 4 + place % 6])
        axes.imshow(image[0], cmap="gray_r")
        axes.set_axis_off()
        axes.set_title(str(found), fontsize=9, color="tab:green" if found == label else "tab:red", pad=1)
    return save_figure(figure, path)
