"""Spoken phrases for an example: made by eSpeak NG, in many voices, speeds and pitches, and with noise."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import espeakng_loader
import numpy as np
from numpy.typing import NDArray

__all__ = ["VOICES", "Speaker", "clip", "speaker"]

RATE = 16000
VOICES = tuple(f"{accent}+{variant}" for accent in ("en-us", "en-gb", "en-gb-scotland") for variant in (
    "m1", "m2", "m3", "m4", "m5", "m6", "m7", "f1", "f2", "f3", "f4", "f5",
))  # fmt: skip

# Of eSpeak's interface, speak_lib.h.
_RETRIEVAL, _UTF8, _BY_CHARACTER = 1, 1, 1
_SPEED, _PITCH = 1, 3
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class Speaker:
    """Says phrases."""

    def __init__(self, library: ctypes.CDLL, rate: int) -> None:
        self._library, self._rate = library, rate

    def say(self, phrase: str, voice: str, speed: int, pitch: int) -> NDArray[np.float32]:
        """16 kHz samples between -1 and 1.

        Args:
            phrase: English words.
            voice: One of `VOICES`.
            speed: Words a minute.
            pitch: From 0 to 99.
        """
        pieces: list[NDArray[np.int16]] = []

        def receive(samples: ctypes._Pointer[ctypes.c_short], count: int, _: int | None) -> int:
            if samples and count > 0:
                pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())
            return 0

        callback = _CALLBACK(receive)
        self._library.espeak_SetSynthCallback(callback)
        self._library.espeak_SetVoiceByName(voice.encode())
        self._library.espeak_SetParameter(_SPEED, speed, 0)
        self._library.espeak_SetParameter(_PITCH, pitch, 0)
        text = phrase.encode()
        self._library.espeak_Synth(text, len(text) + 1, 0, _BY_CHARACTER, 0, _UTF8, None, None)
        self._library.espeak_Synchronize()
        spoken = np.concatenate(pieces).astype(np.float32) / 32768
        times = np.arange(0, len(spoken), self._rate / RATE)
        return np.interp(times, np.arange(len(spoken)), spoken).astype(np.float32)


@contextmanager
def speaker() -> Iterator[Speaker]:
    """A speaker, for as long as the context lasts."""
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    rate = library.espeak_Initialize(_RETRIEVAL, 0, espeakng_loader.get_data_path().encode(), 0)
    if rate <= 0:
        raise RuntimeError("eSpeak NG does not start")
    try:
        yield Speaker(library, rate)
    finally:
        library.espeak_Terminate()


def clip(spoken: NDArray[np.float32], length: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """What was said, so that it ends shortly before the end of `length` samples, with noise around it."""
    samples = (0.003 * 10 ** rng.uniform(0, 1) * rng.standard_normal(length)).astype(np.float32)
    end = length - int(rng.integers(0, RATE // 5))
    spoken = spoken[-end:] * np.float32(rng.uniform(0.3, 1.0))
    samples[end - len(spoken) : end] += spoken
    return samples
