"""The generator against an independent one in Python's integers, and its numbers against what chance allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgeopt.errors import TracingError
from edgeopt.lowering import lower, uses_random_numbers
from edgeopt.tracing import Array, Tracer, new_graph, op

WORD = 2**32


def mixed(word: int) -> int:
    """The finaliser lowbias32."""
    word %= WORD
    word = (word ^ (word >> 16)) * 0x7FEB352D % WORD
    word = (word ^ (word >> 15)) * 0x846CA68B % WORD
    return word ^ (word >> 16)


def words(seed: int, draws: int, ordinal: int, count: int) -> list[int]:
    """What the module's docstring says, element by element, as unsigned words."""
    parts = [seed % WORD, seed // WORD % WORD, draws % WORD, draws // WORD % WORD]
    keys = []
    for j in (0, 1):
        h = sum(mixed(part + (2 * m + j + 1) * 0x85EBCA6B) for m, part in enumerate(parts))
        keys.append(mixed(h + (2 * ordinal + j + 1) * 0x9E3779B9))
    result = []
    for i in range(count):
        a, b = divmod(i, 1024)
        r, s, c = mixed(a + keys[0]), mixed(a + keys[1]), mixed(b)
        result.append((r + c) * (2 * s + 2 * c + 1) % WORD)
    return result


def kept(seed: int, draws: int, ordinal: int, shape: tuple[int, ...], ratio: float) -> Any:
    signed = np.asarray(words(seed, draws, ordinal, math.prod(shape)), np.uint32).view(np.int32)
    return (signed >= math.floor(ratio * WORD) - WORD // 2).reshape(shape)


def dropouts(*ratios: float) -> Callable[[dict[str, Array]], dict[str, Array]]:
    """Dropouts of one tensor, side by side; outputs are their masks."""

    def program(inputs: dict[str, Array]) -> dict[str, Array]:
        x = inputs["x"]
        masks = [x.tracer.emit("Dropout", x, np.float32(r), np.bool_(True), outputs=2)[1] for r in ratios]
        return {f"mask_{i}": mask for i, mask in enumerate(masks)}

    return program


def inputs(shape: tuple[int, ...], seed: int = 0, draws: int = 0) -> dict[str, Any]:
    return {"x": np.ones(shape, np.float32), "seed": np.int64(seed), "draws": np.int64(draws)}


@pytest.mark.parametrize("shape", [(3,), (1024,), (2, 512), (5, 7, 100), ()], ids=str)
@pytest.mark.parametrize(
    ("seed", "draws"), [(0, 0), (1, 0), (0, 1), (-1, 2**40), (2**63 - 1, 12345), (-(2**63), 2**32 - 1)]
)
def test_masks_are_what_the_definition_says(
    shape: tuple[int, ...], seed: int, draws: int, lowered: Callable[..., Any]
) -> None:
    model = lowered(dropouts(0.25, 0.5), inputs(shape, seed, draws))
    for results in (model.run(), model.evaluate()):
        for ordinal, ratio in enumerate((0.25, 0.5)):
            np.testing.assert_array_equal(results[f"mask_{ordinal}"], kept(seed, draws, ordinal, shape, ratio))


@pytest.mark.parametrize("shape", [(3, 5), (70, 50), (1, 1)], ids=str)
def test_named_dimensions_change_nothing(shape: tuple[int, ...], lowered: Callable[..., Any]) -> None:
    model = lowered(dropouts(0.25), inputs((2, 2), 3, 4), {"x": ("batch", "width")})
    result = model.run(x=np.ones(shape, np.float32))["mask_0"]
    np.testing.assert_array_equal(result, kept(3, 4, 0, shape, 0.25))


def test_a_ratio_may_be_an_input(lowered: Callable[..., Any]) -> None:
    def program(arrays: dict[str, Array]) -> dict[str, Array]:
        return {"y": op.Dropout(arrays["x"], arrays["ratio"], np.bool_(True))}

    model = lowered(program, {**inputs((40, 50)), "ratio": np.float32(0.25)})
    for ratio in (0.25, 0.0, 1.0, 0.75):
        expected = kept(0, 0, 0, (40, 50), ratio) * (1 / (1 - ratio) if ratio < 1 else 0.0)
        np.testing.assert_allclose(model.run(ratio=np.float32(ratio))["y"], expected, rtol=1e-6)


def test_uniform_numbers(lowered: Callable[..., Any]) -> None:
    def program(arrays: dict[str, Array]) -> dict[str, Array]:
        x = arrays["x"]
        return {
            "like": op.RandomUniformLike(x, low=-2.0, high=3.0),
            "shape": x.tracer.emit("RandomUniform", shape=[100, 100], dtype=11),
        }

    model = lowered(program, inputs((200, 100), 5, 6))
    results = model.run()
    np.testing.assert_allclose(results["like"], model.evaluate()["like"], rtol=1e-6)
    word = np.asarray(words(5, 6, 0, 20000), np.uint32)
    word = (word ^ (word >> np.uint32(15))) * np.uint32(0x7FEB352D)
    unit = ((word.view(np.int32) & -256) / WORD + 0.5).reshape(200, 100)
    np.testing.assert_allclose(results["like"], unit * 5 - 2, rtol=1e-6, atol=1e-6)
    assert results["shape"].dtype == np.float64
    assert results["shape"].min() >= 0.0
    assert results["shape"].max() < 1.0
    counts = np.histogram(results["shape"], bins=20, range=(0, 1))[0]
    # 43.8 is the 0.1 % point of χ² with 19 degrees of freedom.
    assert ((counts - 500) ** 2 / 500).sum() < 43.8


def test_normal_numbers(lowered: Callable[..., Any]) -> None:
    def program(arrays: dict[str, Array]) -> dict[str, Array]:
        return {"y": op.RandomNormalLike(arrays["x"], mean=1.0, scale=2.0)}

    y = (lowered(program, inputs((300, 100))).run()["y"] - 1) / 2
    n = y.size
    # Mean, variance, skewness and kurtosis within four of their standard errors.
    assert abs(y.mean()) < 4 / math.sqrt(n)
    assert abs(y.var() - 1) < 4 * math.sqrt(2 / n)
    assert abs((y**3).mean()) < 4 * math.sqrt(15 / n)
    assert abs((y**4).mean() - 3) < 4 * math.sqrt(96 / n)


def test_bernoulli_numbers(lowered: Callable[..., Any]) -> None:
    def program(arrays: dict[str, Array]) -> dict[str, Array]:
        return {"y": op.Bernoulli(arrays["x"]), "integer": op.Bernoulli(arrays["x"], dtype=7)}

    probabilities = np.repeat(np.asarray([0.0, 0.1, 0.5, 1.0], np.float32), 10000).reshape(4, -1)
    results = lowered(program, {**inputs((4, 10000)), "x": probabilities}).run()
    assert results["integer"].dtype == np.int64
    for y in results.values():
        np.testing.assert_allclose(y.mean(axis=1), [0.0, 0.1, 0.5, 1.0], atol=4 * 0.005)
    assert (results["y"] != results["integer"]).any()


RATIO = 0.3


@pytest.fixture(scope="module")
def many_masks(lowered: Callable[..., Any]) -> Any:
    """100 runs of two masks of 2¹⁷ elements, (run, node, element), with mean 0 and variance 1 if chance is fair."""
    model = lowered(dropouts(RATIO, RATIO), inputs((128, 1024), seed=11))
    runs = [model.run(draws=np.int64(draws)) for draws in range(100)]
    masks = np.asarray([[run["mask_0"].ravel(), run["mask_1"].ravel()] for run in runs], np.float32)
    return (masks - (1 - RATIO)) / math.sqrt(RATIO * (1 - RATIO))


def assert_standard_normal(scores: Any) -> None:
    """Mean and variance of normal scores within four standard errors; none beyond what chance allows once in 10⁵."""
    scores = np.asarray(scores, np.float64).ravel()
    assert abs(scores.mean()) < 4 / math.sqrt(scores.size)
    assert abs(scores.var() - 1) < 4 * math.sqrt(2 / scores.size)
    assert np.abs(scores).max() < 4.42 + math.log10(scores.size)


def correlation(a: Any, b: Any) -> Any:
    """Standardised: normal with variance 1 where a and b are independent."""
    return (a * b).sum(-1) / math.sqrt(a.shape[-1])


def test_the_share_that_is_kept(many_masks: Any) -> None:
    assert_standard_normal(many_masks.sum(-1) / math.sqrt(many_masks.shape[-1]))


def test_runs_and_nodes_are_independent(many_masks: Any) -> None:
    assert_standard_normal(correlation(many_masks[1:], many_masks[:-1]))
    assert_standard_normal(correlation(many_masks[10:], many_masks[:-10]))
    assert_standard_normal(correlation(many_masks[:, 0], many_masks[:, 1]))


def test_seeds_are_independent(lowered: Callable[..., Any]) -> None:
    model = lowered(dropouts(0.5), inputs((128, 1024)))
    masks = np.asarray([model.run(seed=np.int64(seed))["mask_0"].ravel() for seed in range(60)], np.float32) * 2 - 1
    assert_standard_normal(correlation(masks[1:], masks[:-1]))


@pytest.mark.parametrize("distance", [1, 2, 3, 16, 28, 100, 512, 1023, 1024, 1025, 2048, 65536])
def test_neighbours_are_independent(distance: int, many_masks: Any) -> None:
    assert_standard_normal(correlation(many_masks[..., distance:], many_masks[..., :-distance]))


@pytest.mark.parametrize(("down", "right"), [(1, 1), (1, 512), (3, 5), (64, 1)])
def test_rectangles_are_independent(down: int, right: int, many_masks: Any) -> None:
    """Four elements of two rows and two columns of the table share all their words; no parity shows it."""
    table = many_masks.reshape(200, 128, 1024)
    corners = table[:, :-down, :-right] * table[:, down:, right:]
    others = table[:, down:, :-right] * table[:, :-down, right:]
    assert_standard_normal(correlation(corners.reshape(200, -1), others.reshape(200, -1)))


def test_no_column_and_no_pair_of_rows_stands_out(many_masks: Any) -> None:
    table = many_masks.reshape(200, 128, 1024)
    assert_standard_normal(table.sum((0, 1)) / math.sqrt(200 * 128))
    pairs = np.einsum("ric,rjc->rij", table[:20], table[:20]) / math.sqrt(1024)
    first, second = np.triu_indices(128, 1)
    assert_standard_normal(pairs[:, first, second])


def test_the_patterns_of_eight_neighbours_are_equally_frequent(lowered: Callable[..., Any]) -> None:
    model = lowered(dropouts(0.5), inputs((1024, 1024), seed=5))
    bits = model.run()["mask_0"].reshape(-1, 8)
    counts = np.bincount(bits @ (1 << np.arange(8)), minlength=256)
    expected = bits.shape[0] / 256
    # 330.5 is the 0.1 % point of χ² with 255 degrees of freedom.
    assert ((counts - expected) ** 2 / expected).sum() < 330.5


def test_a_seed_and_a_counter_are_needed() -> None:
    tracer = Tracer(new_graph("unseeded"))
    x = tracer.input("x", np.float32, (3,))
    tracer.output(op.Dropout(x, np.float32(0.5), np.bool_(True)), "y")
    assert uses_random_numbers(tracer.graph)
    with pytest.raises(TracingError, match="'dropout'"):
        lower(tracer)


def test_dropout_in_evaluation_draws_nothing() -> None:
    tracer = Tracer(new_graph("evaluation"))
    x = tracer.input("x", np.float32, (3,))
    tracer.output(op.Dropout(x, np.float32(0.5), np.bool_(False)), "y")
    tracer.output(op.Dropout(x), "z")
    assert not uses_random_numbers(tracer.graph)
    lower(tracer)


def test_only_small_tensors_are_wider_than_32_bits(lowered: Callable[..., Any]) -> None:
    """NPUs and GPUs have no 64-bit integers."""
    graph = lowered(dropouts(0.5), inputs((64, 1024))).graph
    for node in graph:
        for value in node.outputs:
            assert value.dtype is not None
            assert value.shape is not None
            if value.dtype.itemsize > 4:
                assert math.prod(int(dim) for dim in value.shape.numpy()) <= 8
