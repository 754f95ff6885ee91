"""A long export says what it is doing, on a terminal and nowhere else."""

from __future__ import annotations

import io
import sys
import time

import pytest

from edgeopt_exporters import phases
from edgeopt_exporters.phases import phase, phases_shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, *, patience: float, verbose: bool = True) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(phases, "PATIENCE", patience)
    monkeypatch.setenv("TERM", "xterm")
    with phases_shown(verbose=verbose):
        phase("capturing")
        time.sleep(0.4)
        phase("translating")
        time.sleep(0.4)
    phase("nothing listens any more")
    return stream.getvalue()


def test_a_long_export_says_what_it_is_doing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, Terminal(), patience=0.05)
    assert "capturing" in text
    assert "translating" in text
    assert "listens" not in text


@pytest.mark.parametrize(
    ("stream", "patience", "verbose"),
    [(Terminal(), 60.0, True), (io.StringIO(), 0.05, True), (Terminal(), 0.05, False)],
    ids=["short", "pipe", "quiet"],
)
def test_others_say_nothing(
    stream: io.StringIO, patience: float, verbose: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "ing" not in shown(monkeypatch, stream, patience=patience, verbose=verbose)


def test_a_failure_takes_the_line_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(ValueError, match="within"), phases_shown(verbose=True):
        raise ValueError("within")
    assert phases._CURRENT.get() is None
