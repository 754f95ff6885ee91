from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from edgeopt.autodiff import backward
from edgeopt.autodiff.registry import RULES
from edgeopt.autodiff.rules import spectral
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.tracing import Array, Tracer, new_graph, op


def numbers(x: torch.Tensor) -> torch.Tensor:
    """Pairs as complex numbers, or single numbers as they are."""
    return torch.view_as_complex(x.contiguous()) if x.shape[-1] == 2 else x[..., 0]


def transform(length: int | None = None, axis: int = -2, **how: Any) -> Callable[[Array], Array]:
    return lambda x: op.DFT(x, None if length is None else np.int64(length), np.int64(axis), **how)


def fft(length: int | None = None, axis: int = 1) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.view_as_real(torch.fft.fft(numbers(x), length, axis))


def ifft(length: int | None = None, axis: int = 1) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.view_as_real(torch.fft.ifft(numbers(x), length, axis).resolve_conj())


def rfft(length: int | None = None, axis: int = 1) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.view_as_real(torch.fft.rfft(x[..., 0], length, axis))


def irfft(length: int | None = None, axis: int = 1) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: torch.fft.irfft(numbers(x), length, axis)[..., None]


REAL, COMPLEX = [(2, 5, 1)], [(2, 5, 2)]
STEP = np.int64(3)


def stft(length: int, onesided: bool, window: torch.Tensor | None = None) -> Callable[..., torch.Tensor]:
    """torch moves the frames to the last place, and wants a window of its own."""

    def reference(x: torch.Tensor, given: torch.Tensor | None = None) -> torch.Tensor:
        chosen = given if given is not None else torch.ones(length, dtype=x.dtype) if window is None else window
        spectrum = torch.stft(
            numbers(x), length, 3, length, chosen.to(x.dtype), False, onesided=onesided, return_complex=True
        )
        return torch.view_as_real(spectrum.transpose(1, 2))

    return reference


ROWS: list[tuple[Any, ...]] = [
    ("DFT", fft(), REAL, transform()),
    ("DFT", fft(), COMPLEX, transform()),
    ("DFT", fft(7), COMPLEX, transform(7)),
    ("DFT", fft(3), REAL, transform(3)),
    ("DFT", fft(4, 0), [(3, 2, 2)], transform(4, 0)),
    ("DFT", fft(None, 1), [(2, 3, 4, 2)], transform(axis=-3)),
    ("DFT", ifft(), COMPLEX, transform(inverse=1)),
    ("DFT", ifft(), REAL, transform(inverse=1)),
    ("DFT", ifft(7), COMPLEX, transform(7, 1, inverse=1)),
    ("DFT", ifft(3), COMPLEX, transform(3, inverse=1)),
    *(("DFT", rfft(length), REAL, transform(length, onesided=1)) for length in (None, 3, 4, 7, 8)),
    *(("DFT", irfft(length), COMPLEX, transform(length, onesided=1, inverse=1)) for length in (None, 5, 6, 9, 11)),
    ("STFT", stft(8, True), [(2, 17, 1)], lambda x: op.STFT(x, STEP, None, np.int64(8), onesided=1)),
    ("STFT", stft(7, False), [(2, 17, 1)], lambda x: op.STFT(x, STEP, None, np.int64(7), onesided=0)),
    ("STFT", stft(8, False), [(2, 17, 2)], lambda x: op.STFT(x, STEP, None, np.int64(8), onesided=0)),
    ("STFT", stft(8, True), [(2, 17, 1), (8,)], lambda x, w: op.STFT(x, STEP, w, onesided=1)),
    (
        "STFT",
        stft(6, True, torch.hann_window(6)),
        [(2, 18, 1)],
        lambda x: op.STFT(x, STEP, op.HannWindow(x.tracer.constant(np.int64(6)), output_datatype=1), onesided=1)
        if x.dtype == np.float32
        else op.STFT(x, STEP, torch.hann_window(6, dtype=torch.float64).numpy(), onesided=1),
    ),
]  # fmt: skip


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


def test_every_rule_has_a_row() -> None:
    rules = {name for name, rule in RULES.items() if rule.apply.__module__ == spectral.__name__}
    assert rules == {row[0] for row in ROWS}


@pytest.mark.parametrize("length", [None, 3, 8])
@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft"])
def test_named_dimensions(kind: str, length: int | None, check_row_with_names: Callable[..., None]) -> None:
    how: dict[str, Any] = {"inverse": int("i" in kind), "onesided": int("r" in kind)}
    reference = {"fft": fft, "ifft": ifft, "rfft": rfft, "irfft": irfft}[kind](length)
    shape = (2, 5, 1 if kind == "rfft" else 2)
    check_row_with_names(("DFT", reference, [shape], transform(length, **how)), [("batch", "time", shape[-1])])


def test_frames_of_a_named_length(check_row_with_names: Callable[..., None]) -> None:
    check_row_with_names(ROWS[-3], [("batch", "time", 2)])
    check_row_with_names(ROWS[-2], [("batch", "time", 1), (8,)])


def test_frames_not_known_before_the_run_are_refused() -> None:
    tracer = Tracer(new_graph("refused"))
    x, step = tracer.input("x", np.float32, (2, 17, 1)), tracer.input("step", np.int64, ())
    y = op.STFT(x, step, np.ones(8, np.float32))
    with pytest.raises(UnsupportedOperatorError, match="step or the length of its frames"):
        backward(tracer, {y.value: y}, [x.value])
