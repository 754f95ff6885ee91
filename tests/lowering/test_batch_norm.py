from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgeopt.autodiff import backward
from edgeopt.tracing import Array


def batch_norm(arrays: dict[str, Array]) -> dict[str, Array]:
    names = ("x", "scale", "bias", "mean", "variance")
    outputs = arrays["x"].tracer.emit(
        "BatchNormalization",
        *(arrays[name] for name in names),
        training_mode=1,
        momentum=0.75,
        epsilon=0.0078125,
        outputs=3,
    )
    return dict(zip(("y", "running_mean", "running_variance"), outputs, strict=True))


def inputs(shape: tuple[int, ...], dtype: Any) -> dict[str, Any]:
    random = np.random.default_rng(0)
    vectors = {name: random.uniform(0.5, 2.0, shape[1]) for name in ("scale", "bias", "mean", "variance")}
    arrays = {"x": random.standard_normal(shape) * 3 + 1, **vectors}
    return {name: array.astype(dtype) for name, array in arrays.items()}


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (4, 3, 5, 2)], ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_outputs_follow_the_specification(
    shape: tuple[int, ...], dtype: Any, tolerance: float, lowered: Callable[..., Any]
) -> None:
    given = inputs(shape, dtype)
    model = lowered(batch_norm, given, {"x": ("batch", *shape[1:])})
    assert "training_mode" not in {name for node in model.graph for name in node.attributes}
    axes = (0, *range(2, len(shape)))
    mean, variance = given["x"].mean(axes), given["x"].var(axes)
    spread = (slice(None), *[None] * (len(shape) - 2))
    normed = (given["x"] - mean[spread]) / np.sqrt(variance + 0.0078125)[spread]
    results = model.run()
    np.testing.assert_allclose(
        results["y"], normed * given["scale"][spread] + given["bias"][spread], rtol=tolerance, atol=tolerance
    )
    np.testing.assert_allclose(results["running_mean"], 0.75 * given["mean"] + 0.25 * mean, rtol=tolerance)
    np.testing.assert_allclose(results["running_variance"], 0.75 * given["variance"] + 0.25 * variance, rtol=tolerance)


def test_statistics_are_computed_once_for_both_directions(lowered: Callable[..., Any]) -> None:
    def program(arrays: dict[str, Array]) -> dict[str, Array]:
        outputs = batch_norm(arrays)
        x, y = arrays["x"], outputs["y"]
        (gradient,) = backward(x.tracer, {y.value: y}, [x.value])
        assert gradient is not None
        return {**outputs, "gradient": gradient}

    operators = lowered(program, inputs((4, 3, 5, 2), np.float32)).operators
    assert operators.count("ReduceMean") == 2
    # The centred input; the gradient itself subtracts once more.
    assert operators.count("Sub") == 2
