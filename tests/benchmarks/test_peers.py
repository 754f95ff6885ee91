from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from peers import ANCHOR, PEERS, Cannot
from peers.interpreters import find_interpreter
from peers.registry import PEAKS
from workloads import WORKLOADS

ENVIRONMENTS = Path(__file__).parents[2] / "benchmarks" / "peers" / "environments"


def test_the_anchor_is_a_peer() -> None:
    assert ANCHOR in PEERS
    assert not PEERS[ANCHOR].ours


@pytest.mark.parametrize("peer", [*PEERS.values(), *PEAKS.values()], ids=lambda peer: peer.name)
def test_a_peer_has_its_three_functions_and_an_environment(peer) -> None:
    # Importing the module needs none of the packages it measures.
    module = import_module(f"peers.{peer.module}")
    assert {"PACKAGES", "imports", "prepare", "load"} <= set(dir(module))
    if peer.environment:
        required = (ENVIRONMENTS / f"{peer.environment}.txt").read_text()
        assert module.PACKAGES[0] in required
    if peer.artifact:
        assert peer.artifact in PEERS


@pytest.mark.parametrize("name", ["litert", "mnn"])
def test_what_a_peer_cannot_train_it_says_before_it_needs_its_package(name: str, tmp_path: Path) -> None:
    module = import_module(f"peers.{PEERS[name].module}")
    for workload in ("bert-tiny", "update-1m"):
        with pytest.raises(Cannot):
            module.prepare(WORKLOADS[workload], "", tmp_path)


def test_an_environment_that_was_not_made_is_named() -> None:
    from measuring.process import Failed

    if (ENVIRONMENTS.parents[2] / "build" / "peers" / "mnn").exists():
        assert find_interpreter("mnn", "mnn").name == "python"
    else:
        with pytest.raises(Failed, match="make build/peers/mnn/stamp"):
            find_interpreter("mnn", "mnn")
