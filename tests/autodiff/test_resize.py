from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgeopt.autodiff import backward
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.testing import check_gradients
from edgeopt.tracing import Array, Tracer, new_graph, op

NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
LINEAR = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
CORNERS = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
CUBIC: dict[str, Any] = {"mode": "cubic", "coordinate_transformation_mode": "half_pixel", "cubic_coeff_a": -0.75}
# torch's coefficient where it filters.
SHARP = {**CUBIC, "cubic_coeff_a": -0.5}
ALIGNED = {"coordinate_transformation_mode": "align_corners"}
EXACT = {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
INTERPOLATIONS: list[dict[str, Any]] = [
    *({"mode": "nearest", "nearest_mode": how} for how in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    {"mode": "linear"},
    {"mode": "linear", "antialias": 1},
    {"mode": "cubic"},
    {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
    {"mode": "cubic", "antialias": 1},
]


def scales(numbers: Sequence[float]) -> Any:
    return np.asarray(numbers, np.float32)


def to(sizes: Sequence[int], how: dict[str, Any]) -> Callable[[Array], Array]:
    return lambda x: op.Resize(x, None, None, list(sizes), **how)


def by_scales(scales: Sequence[float], how: dict[str, Any]) -> Callable[[Array], Array]:
    return lambda x: op.Resize(x, None, np.asarray([1, 1, *scales], np.float32), **how)


def to_sizes(sizes: Sequence[int], how: dict[str, Any]) -> Callable[[Array], Array]:
    return lambda x: op.Resize(x, None, None, np.asarray([2, 3, *sizes], np.int64), **how)


def torchs(mode: str, **how: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: functional.interpolate(x, mode=mode, **how)


IMAGE, LINE = [(2, 3, 4, 5)], [(2, 3, 5)]

ROWS: list[tuple[Any, ...]] = [
    ("Resize", torchs("nearest", scale_factor=2), IMAGE, by_scales([2, 2], NEAREST)),
    ("Resize", torchs("nearest", scale_factor=(1, 3)), IMAGE, by_scales([1, 3], NEAREST)),
    ("Resize", torchs("nearest", scale_factor=2), LINE, by_scales([2], NEAREST)),
    ("Resize", torchs("nearest", size=(7, 3)), IMAGE, to_sizes([7, 3], NEAREST)),
    ("Resize", torchs("bilinear", scale_factor=2), IMAGE, by_scales([2, 2], LINEAR)),
    ("Resize", torchs("bilinear", size=(7, 3)), IMAGE, to_sizes([7, 3], LINEAR)),
    ("Resize", torchs("bilinear", size=(7, 3), align_corners=True), IMAGE, to_sizes([7, 3], CORNERS)),
    ("Resize", torchs("linear", size=8), LINE, to_sizes([8], LINEAR)),
    ("Resize", torchs("bicubic", scale_factor=2), IMAGE, by_scales([2, 2], CUBIC)),
    ("Resize", torchs("trilinear", scale_factor=2), [(1, 2, 2, 3, 2)], by_scales([2, 2, 2], LINEAR)),
    ("Resize", torchs("nearest", scale_factor=3), IMAGE, by_scales([3, 3], {"mode": "nearest"})),
    ("Resize", torchs("nearest-exact", size=(7, 3)), IMAGE, to_sizes([7, 3], EXACT)),
    ("Resize", torchs("bicubic", size=(7, 3), align_corners=True), IMAGE, to_sizes([7, 3], {**CUBIC, **ALIGNED})),
    *(
        (
            "Resize",
            torchs("bi" + mode, size=size, antialias=True),
            IMAGE,
            to_sizes(size, {**how, "antialias": 1, "exclude_outside": 1}),
        )
        for mode, how in (("linear", LINEAR), ("cubic", SHARP))
        for size in ([2, 3], [7, 2])
    ),
    # Images whose channels come last, and the axes of the sizes named.
    (
        "Resize",
        lambda x: torchs("bilinear", size=(6, 3))(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1),
        [(2, 3, 4, 2)],
        lambda x: op.Resize(x, None, None, [3, 6], axes=[2, 1], **LINEAR),
    ),
    # What no kernel of ONNX Runtime does: a vector, a line in cubic mode, channels too.
    ("Resize", lambda x: torchs("linear", size=8)(x[None, None])[0, 0], [(5,)], to([8], LINEAR)),
    ("Resize", lambda x: torchs("bicubic", size=(1, 8))(x[:, :, None])[:, :, 0], LINE, to([2, 3, 8], CUBIC)),
    (
        "Resize",
        lambda x: torchs("trilinear", size=(5, 2, 7))(x[:, None])[:, 0],
        IMAGE,
        lambda x: op.Resize(x, None, None, [2, 5, 2, 7], **LINEAR),
    ),
    ("Resize", lambda x: x.repeat_interleave(2, 1), LINE, lambda x: op.Resize(x, None, scales([1, 2, 1]), **NEAREST)),
    ("Resize", lambda x: 1.0 * x, IMAGE, by_scales([1, 1], LINEAR)),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


@pytest.mark.parametrize("how", [NEAREST, LINEAR], ids=["nearest", "linear"])
def test_a_named_batch(how: dict[str, Any], check_row_with_names: Callable[..., None]) -> None:
    mode = "nearest" if how is NEAREST else "bilinear"
    row = ("Resize", torchs(mode, scale_factor=2), IMAGE, by_scales([2, 2], how))
    check_row_with_names(row, [("batch", 3, 4, 5)])


def test_repeated_elements_need_no_known_size(check_row_with_names: Callable[..., None]) -> None:
    row = ("Resize", torchs("nearest", scale_factor=2), IMAGE, by_scales([2, 2], NEAREST))
    check_row_with_names(row, [("batch", 3, "height", "width")])


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_sizes_that_are_not_known_before_the_run(mode: str, check_row_with_names: Callable[..., None]) -> None:
    how: dict[str, Any] = {"nearest": NEAREST, "bilinear": LINEAR, "bicubic": CUBIC}[mode]
    dims = [("batch", 3, "height", "width")]
    check_row_with_names(("Resize", torchs(mode, scale_factor=(1.5, 0.8)), IMAGE, by_scales([1.5, 0.8], how)), dims)
    # As large as another image, the usual form in decoders.
    row = (
        "Resize",
        lambda x, y: torchs(mode, size=y.shape[2:])(x) * y,
        [(2, 3, 4, 5), (2, 3, 7, 4)],
        lambda x, y: op.Resize(x, None, None, op.Shape(y), **how) * y,
    )
    check_row_with_names(row, [*dims, ("batch", 3, "taller", "wider")])


def assert_adjoint(resized: Callable[[Array], Array], size: Sequence[int], make_step: Callable[..., Any]) -> None:
    """<c, Rx> = <R'c, x> for random c and x, with R as ONNX Runtime computes it."""
    rng = np.random.default_rng(0)
    x, other, c = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 4, 5), (2, 3, 4, 5), (2, 3, *size)))
    step = make_step(lambda x: resized(x).with_shape(c.shape), [x.shape])
    _, gradient = step.run([x], c)
    output, again = step.run([other], c)
    np.testing.assert_array_equal(gradient, again)
    assert output.shape == c.shape
    np.testing.assert_allclose((output * c).sum((2, 3)), (gradient * other).sum((2, 3)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("how", INTERPOLATIONS, ids=str)
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_every_mode(how: dict[str, Any], coordinates: str, make_step: Callable[..., Any]) -> None:
    how = {**how, "coordinate_transformation_mode": coordinates}
    assert_adjoint(by_scales([1.7, 0.6], how), (6, 3), make_step)
    assert_adjoint(to_sizes([3, 8], how), (3, 8), make_step)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_cropped_region(mode: str, make_step: Callable[..., Any]) -> None:
    how = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "axes": [2, 3]}
    region = np.asarray([0.1, -0.2, 0.8, 1.3], np.float32)
    assert_adjoint(lambda x: op.Resize(x, region, None, [6, 5], **how), (6, 5), make_step)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_outside_of_a_cropped_region(mode: str, make_step: Callable[..., Any], lowered_in_double: Any) -> None:
    """The extrapolation value has no gradient; in float64 it is there all the same."""
    how = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    region = np.asarray([0, 0, 0.1, -0.2, 1, 1, 0.8, 1.3], np.float32)
    resized = lambda x: op.Resize(x, region, None, [2, 3, 6, 8], **how)  # noqa: E731  # used twice
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
    output, gradient = make_step(resized, [x.shape]).run([x], np.ones((2, 3, 6, 8), np.float32))
    np.testing.assert_allclose(lowered_in_double(resized, x), output, rtol=1e-5, atol=1e-5)
    assert 7.0 in output
    np.testing.assert_allclose((output - 7.0 * (output == 7.0)).sum(), (gradient * x).sum(), rtol=1e-4)


@pytest.mark.parametrize("how", [*INTERPOLATIONS[:2], LINEAR, CUBIC], ids=str)
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize(("policy", "size"), [("not_larger", (6, 7)), ("not_smaller", (6, 8)), ("not_larger", (3, 4))])
def test_a_kept_aspect_ratio(
    how: dict[str, Any], coordinates: str, policy: str, size: tuple[int, int], make_step: Callable[..., Any]
) -> None:
    asked = {("not_larger", (6, 7)): [9, 7], ("not_smaller", (6, 8)): [6, 4], ("not_larger", (3, 4)): [3, 9]}
    how = {**how, "coordinate_transformation_mode": coordinates, "keep_aspect_ratio_policy": policy, "axes": [2, 3]}
    assert_adjoint(lambda x: op.Resize(x, None, None, asked[policy, size], **how), size, make_step)


def test_a_kept_aspect_ratio_of_unknown_sizes_in_float64() -> None:
    """What takes the operator's place there cannot ask it for its size."""
    how = {"keep_aspect_ratio_policy": "not_larger", "axes": [2, 3], "mode": "linear"}
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 2, 2, 3))}
    check_gradients(lambda x: op.Resize(x, None, None, [7, 8], **how), inputs, shapes={"x": (1, 2, "h", "w")})


def test_what_is_refused() -> None:
    tracer = Tracer(new_graph("refused"))
    x = tracer.input("x", np.float32, (2, 3, 4, 5))
    y = op.Resize(x, None, None, [8, 8], axes=[2, 3], keep_aspect_ratio_policy="not_larger", antialias=1, mode="linear")
    with pytest.raises(UnsupportedOperatorError, match="aspect ratio"):
        backward(tracer, {y.value: y}, [x.value])
