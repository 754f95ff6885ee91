"""A wake word of one's own, from an ONNX file that knows another one.

openWakeWord ships three files: one makes a spectrogram of sound, one makes features of that, and a small one listens to
the features for "hey rhasspy". The last one learns another phrase here, from clips in some voices; it is tested with
voices that it has not heard, and with phrases that sound alike. The first two stay as they are and run once, as they
would on a device.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
from matplotlib.figure import Figure

import edgeopt
from edgeopt_runtime import TrainingSession
from finetuning.files import packaged
from finetuning.results import Array, Figures, Result, learning_curve, save_figure, shuffled
from finetuning.speech import VOICES, clip, speaker

WAKE = "okay mirror"
OTHERS = (
    "okay miriam", "okay minor", "hey mirror", "the mirror", "okay", "hey rhasspy", "what time is it", "turn it off",
    "good morning", "okay computer", "play some music", "it is raining", "mirror mirror", "never mind", "okay maybe",
)  # fmt: skip
LENGTH, WINDOW, WINDOWS = 32000, 76, 16  # samples in two seconds; frames in a window; windows in a clip


class Listener:
    """What comes in front of the wake word: sound in, features out."""

    def __init__(self) -> None:
        self._spectrogram, self._embedding = (
            onnxruntime.InferenceSession(str(packaged(name)), providers=["CPUExecutionProvider"])
            for name in ("oww_melspectrogram.onnx", "oww_embedding_model.onnx")
        )

    def features(self, sound: Array) -> Array:
        """16 vectors of 96 numbers of two seconds at 16 kHz."""
        name = self._spectrogram.get_inputs()[0].name
        frames = self._spectrogram.run(None, {name: (32767 * sound)[None].astype(np.float32)})[0].squeeze() / 10 + 2
        starts = np.linspace(0, len(frames) - WINDOW, WINDOWS).astype(int)
        windows = np.stack([frames[start : start + WINDOW] for start in starts])[..., None]
        found = self._embedding.run(None, {self._embedding.get_inputs()[0].name: windows.astype(np.float32)})[0]
        return np.asarray(found).reshape(WINDOWS, 96)


def clips(voices: tuple[str, ...], count: int, rng: np.random.Generator) -> tuple[Array, Array, list[str]]:
    """Features of clips, half of them with the wake word; 1.0 where that is, of shape (count, 1); and the phrases."""
    listener = Listener()
    phrases = [WAKE if place % 2 else str(rng.choice(OTHERS)) for place in range(count)]
    with speaker() as voice:
        sounds = [
            clip(
                voice.say(phrase, str(rng.choice(voices)), int(rng.integers(120, 200)), int(rng.integers(20, 80))),
                LENGTH,
                rng,
            )
            for phrase in phrases
        ]
    features = np.stack([listener.features(sound) for sound in sounds])
    return features, np.asarray([[float(phrase == WAKE)] for phrase in phrases], np.float32), phrases


def run(folder: Path, *, quick: bool = False) -> Result:
    """Teach the phrase; writes the bundle, the model and the picture into the folder."""
    rng = np.random.default_rng(0)
    heard, unheard = VOICES[::2], VOICES[1::2]
    features, labels, _ = clips(heard, 120 if quick else 600, rng)
    test_features, test_labels, phrases = clips(unheard, 80 if quick else 300, rng)
    model = packaged("oww_hey_rhasspy_v0.1.onnx")
    bundle = edgeopt.export(model, loss="bce_with_logits", optimizer="adamw:lr=1e-3", metrics="accuracy", verbose=False)
    session = bundle.session()
    before = session.evaluate([(test_features, test_labels)])["accuracy"]
    history = session.fit(lambda: shuffled(rng, 20, features, labels), epochs=8 if quick else 10, progress=False)
    after = session.evaluate([(test_features, test_labels)])["accuracy"]
    folder.mkdir(parents=True, exist_ok=True)
    session.save(folder / "keyword.edgeopt")
    session.export_inference(folder / "keyword.onnx")
    picture = draw(folder / "keyword.png", session, test_features, phrases, [step["loss"] for step in history.steps])
    figures = [Figures(f'"{WAKE}" in voices not heard', before, after, f"{len(labels)} clips to learn from")]
    return Result("a wake word of one's own, from an ONNX file", "accuracy", figures, picture)


def draw(path: Path, session: TrainingSession, features: Array, phrases: list[str], losses: list[float]) -> Path:
    """The loss, and how sure the model is at each phrase."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    grid = figure.add_gridspec(1, 2)
    learning_curve(figure, grid[0], losses)
    axes = figure.add_subplot(grid[1])
    sure = np.asarray(session.predict(features))[:, 0]
    names = [WAKE, *sorted(set(phrases) - {WAKE})]
    rows = np.asarray([names.index(phrase) for phrase in phrases])
    wanted = rows == 0
    axes.plot(sure[wanted], rows[wanted], "o", alpha=0.3, color="tab:green")
    axes.plot(sure[~wanted], rows[~wanted], "o", alpha=0.3, color="tab:red")
    axes.axvline(0.5, color="tab:gray", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("how sure it is to have heard the wake word")
    return save_figure(figure, path)
