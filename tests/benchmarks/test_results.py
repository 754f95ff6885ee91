from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from measuring.records import Record, Store, fingerprint
from measuring.series import Series
from reporting.markdown import markdown
from reporting.results import Results
from workloads import WORKLOADS, select

LOSSES = [2.0, 1.8, 1.6, 1.4, 1.2, 1.0, 1.1]
FACTS = {"flops": 4_000_000, "update_bytes": 2_000_000, "parameters": 9, "trained": 9}


def record(peer: str, over: float, losses: list[float] = LOSSES, workload: str = "mlp-1", cannot: str = "") -> Record:
    return Record(
        workload,
        1,
        peer,
        "key",
        cannot=cannot,
        median_ms=2 * over,
        over_anchor=(over, over, over),
        losses=losses,
        memory_mib=10 * over,
        gemm_flops=1e10,
        copy_bytes=4e9,
    )


def results(*records: Record) -> Results:
    cells = {(each.workload, each.threads, each.peer): each for each in records}
    about = {"system": "Linux", "architecture": "x", "cores": 2, "cpu_features": [], "python": "3"}
    return Results(cells, {each.workload: FACTS for each in records}, about)


def test_speed_is_relative_to_the_fastest_peer_that_trains_the_same() -> None:
    wrong = [2.0, 1.8, 1.6, 1.4, 1.2, 1.3]
    found = results(
        record("edgeopt", 0.5), record("torch", 1.0), record("torch-fused", 0.8), record("torch-foreach", 0.1, wrong)
    )
    fastest = found.fastest("mlp-1", 1)
    assert fastest is not None
    assert fastest.peer == "torch-fused"
    assert found.speed("mlp-1", 1, "edgeopt") == pytest.approx(1.6)
    assert found.speed("mlp-1", 1, "edgeopt", "torch") == pytest.approx(2.0)
    assert found.difference(record("torch-foreach", 0.1, wrong)) == pytest.approx(0.3)


def test_a_mean_is_geometric() -> None:
    found = results(
        *(record(peer, over) for peer, over in (("edgeopt", 0.5), ("torch", 1.0))),
        *(record(peer, over, workload="cnn") for peer, over in (("edgeopt", 2.0), ("torch", 1.0))),
        *(record(peer, over, workload="update-1m") for peer, over in (("edgeopt", 0.25), ("torch", 1.0))),
    )
    assert found.mean_speed("edgeopt", 1) == pytest.approx(1.0)
    assert found.mean_speed("edgeopt", 1, updates=True) == pytest.approx(4.0)


def test_shares_are_of_the_peaks() -> None:
    gemm, copy = results(record("torch", 1.0)).shares(record("torch", 1.0))
    assert gemm == pytest.approx(4e6 / 2e-3 / 1e10)
    assert copy == pytest.approx(2e6 / 2e-3 / 4e9)


def test_the_report_says_who_was_wrong_and_who_could_not() -> None:
    wrong = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    text = markdown(
        results(
            record("edgeopt", 0.5),
            record("torch", 1.0),
            record("torch-fused", 0.1, wrong),
            record("torch-foreach", 0.0, cannot="there is no operator."),
        )
    )
    assert "| MLP, batch 1 | 1 | **2** | - [1] | 0.2 ≠ [2] |" in text
    assert "1. there is no operator." in text
    assert "2. torch-fused on MLP, batch 1: its losses differ from PyTorch's by 6 of" in text


def test_records_come_back_unless_what_was_measured_changed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(record("torch", 1.0))
    assert store.all() == [store.find("mlp-1", 1, "torch")]
    assert store.current("mlp-1", 1, "torch", "key", quick=False) is not None
    assert store.current("mlp-1", 1, "torch", "other", quick=False) is None
    hurried = record("torch", 1.0)
    hurried.quick = True
    store.save(hurried)
    assert store.current("mlp-1", 1, "torch", "key", quick=False) is None
    assert store.current("mlp-1", 1, "torch", "key", quick=True) is not None


def test_a_fingerprint_follows_contents(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    before = fingerprint([tmp_path], "word")
    assert before == fingerprint([tmp_path], "word")
    assert before != fingerprint([tmp_path], "other")
    (tmp_path / "a.py").write_text("2")
    assert before != fingerprint([tmp_path], "word")


def test_ratios_are_taken_within_rounds() -> None:
    slow, fast = Series(seconds=[[2.0, 2.0], [4.0]], processor=[2.0, 4.0]), Series(seconds=[[1.0, 3.0], [1.0]])
    assert slow.over(fast) == [1.0, 4.0]
    slow.choose([1])
    assert slow.median_ms == 4000.0


def test_words_choose_by_name_beginning_and_pattern() -> None:
    assert list(select(["mlp"], WORKLOADS)) == ["mlp-1", "mlp-32"]
    assert list(select(["minilm"], WORKLOADS)) == ["minilm"]
    assert list(select(["*-lora"], WORKLOADS)) == ["bert-tiny-lora", "minilm-lora"]
    assert list(select([], WORKLOADS)) == list(WORKLOADS)


@pytest.mark.parametrize("name", [name for name, workload in WORKLOADS.items() if not workload.update])
def test_batches_are_the_same_for_everyone_and_new_at_every_step(name: str) -> None:
    batch = WORKLOADS[name].batch
    np.testing.assert_array_equal(batch(3)[0], batch(3)[0])
    assert (batch(3)[0] != batch(4)[0]).any()


def test_only_what_is_named_trains() -> None:
    module = WORKLOADS["bert-tiny-lora"].module()
    trained = {name.rpartition(".")[0] for name, value in module.named_parameters() if value.requires_grad}
    assert {place.rsplit(".", 1)[1] for place in trained} == {"lora_a", "lora_b", "classifier"}
    assert len(trained) == 2 * 2 * 2 + 1
