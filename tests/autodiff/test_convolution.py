from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgeopt.autodiff import backward
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.tracing import Tracer, new_graph, op

FORWARD: dict[int, Callable[..., torch.Tensor]] = {
    1: functional.conv1d,
    2: functional.conv2d,
    3: functional.conv3d,
}
TRANSPOSED: dict[int, Callable[..., torch.Tensor]] = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}


def conv(
    x: tuple[int, ...],
    w: tuple[int, ...],
    strides: Sequence[int] | int = 1,
    padding: Sequence[int] | int = 0,
    dilations: Sequence[int] | int = 1,
    group: int = 1,
    bias: bool = True,
) -> tuple[Any, ...]:
    """A row for Conv with symmetric padding, as torch has it."""
    rank = len(x) - 2
    strides, padding, dilations = (
        [size] * rank if isinstance(size, int) else list(size) for size in (strides, padding, dilations)
    )

    def reference(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None) -> torch.Tensor:
        return FORWARD[rank](x, w, b, strides, padding, dilations, group)

    how = {"strides": strides, "pads": padding * 2, "dilations": dilations, "group": group}
    return ("Conv", reference, [x, w, (w[0],)] if bias else [x, w], how)


def transposed(
    x: tuple[int, ...],
    w: tuple[int, ...],
    strides: Sequence[int] | int = 1,
    padding: Sequence[int] | int = 0,
    dilations: Sequence[int] | int = 1,
    group: int = 1,
    extra: Sequence[int] | int = 0,
) -> tuple[Any, ...]:
    rank = len(x) - 2
    strides, padding, dilations, extra = (
        [size] * rank if isinstance(size, int) else list(size) for size in (strides, padding, dilations, extra)
    )

    def reference(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return TRANSPOSED[rank](x, w, b, strides, padding, extra, group, dilations)

    how = {"strides": strides, "pads": padding * 2, "dilations": dilations, "group": group, "output_padding": extra}
    return ("ConvTranspose", reference, [x, w, (w[1] * group,)], how)


ROWS: list[tuple[Any, ...]] = [
    # The thirteen of ONNX Runtime's own training tests: plain, strided, pointwise and dilated, one to three dimensions.
    conv((2, 2, 5), (3, 2, 3)),
    conv((2, 2, 5), (3, 2, 3), padding=1, strides=2),
    conv((2, 2, 5), (3, 2, 1)),
    conv((2, 2, 5), (3, 2, 1), padding=1),
    conv((2, 9, 7, 7), (3, 9, 3, 3), bias=False),
    conv((2, 9, 7, 7), (3, 9, 3, 3), padding=1, strides=2),
    conv((2, 9, 7, 7), (3, 9, 1, 1)),
    conv((2, 9, 7, 7), (3, 9, 1, 1), padding=1),
    conv((2, 9, 7, 7), (3, 9, 3, 3), dilations=2),
    conv((2, 2, 7, 7), (3, 2, 3, 3), padding=1, dilations=2),
    conv((2, 2, 4, 4, 4), (2, 2, 3, 3, 3)),
    conv((2, 2, 5, 5, 5), (2, 2, 3, 3, 3), padding=1, strides=2),
    conv((2, 2, 5, 5, 5), (2, 2, 2, 2, 2), dilations=2),
    # Small images are laid one behind the other, with one tap and with many; a large weight is then read once.
    conv((3, 64, 2, 2), (40, 64, 3, 3), padding=1),
    conv((3, 128, 4, 4), (130, 128, 3, 3), padding=1, strides=2, bias=False),
    conv((3, 128, 3, 4), (128, 128, 2, 3), padding=[0, 1], dilations=[2, 1]),
    conv((3, 60, 3, 3), (70, 60, 1, 1)),
    conv((3, 60, 5), (70, 60, 1)),
    conv((3, 6, 5, 5), (4, 6, 1, 1), strides=2),
    # Depthwise kernels are turned round where they move by one.
    conv((2, 6, 5, 4), (6, 1, 3, 2), padding=[2, 1], group=6),
    conv((2, 6, 7, 7), (6, 1, 3, 3), padding=2, dilations=2, group=6),
    conv((2, 6, 7), (6, 1, 3), padding=1, group=6),
    conv((2, 6, 7, 7), (12, 1, 3, 3), padding=1, group=6),
    # Few channels take the im2col form, many the form tap by tap, depthwise ones that by rows.
    conv((2, 1, 8, 8), (3, 1, 3, 3), padding=1),
    conv((2, 3, 11, 9), (4, 3, 7, 5), strides=2, padding=[3, 2]),
    conv((2, 10, 6, 5), (4, 10, 3, 2), padding=[1, 0]),
    conv((2, 4, 9, 8), (6, 2, 3, 2), strides=[2, 1], padding=1, dilations=[1, 2], group=2),
    conv((2, 4, 6, 5), (6, 2, 3, 3), padding=1, group=2),
    conv((2, 4, 6, 5), (4, 1, 3, 3), padding=1, group=4),
    conv((2, 4, 7, 6), (4, 1, 3, 2), padding=1, dilations=[2, 1], group=4),
    conv((2, 4, 7, 6), (4, 1, 3, 3), strides=2, padding=1, group=4),
    conv((2, 4, 7, 6), (8, 1, 3, 3), padding=1, group=4),
    conv((1, 2, 61, 3), (2, 1, 3, 2), padding=[1, 0], dilations=[2, 1], group=2),
    conv((2, 4, 9), (4, 1, 3), padding=1, group=4),
    conv((2, 4, 4, 5, 3), (4, 1, 2, 3, 2), padding=[0, 1, 1], group=4),
    # What a stride leaves over at the end.
    conv((1, 2, 8, 9), (3, 2, 3, 3), strides=3),
    conv((1, 2, 6, 6), (3, 2, 1, 1), strides=2, bias=False),
    transposed((2, 3, 5), (3, 4, 3), strides=2, padding=1, extra=1),
    transposed((2, 3, 5), (3, 4, 3)),
    transposed((2, 4, 5, 4), (4, 3, 3, 2), strides=[2, 3], padding=[1, 0], dilations=[1, 2], group=2, extra=[0, 2]),
    transposed((2, 10, 4, 4), (10, 3, 3, 3), padding=1),
    transposed((2, 4, 4, 4), (4, 1, 2, 2), strides=2, group=4),
    transposed((1, 2, 3, 3, 2), (2, 2, 2, 2, 2), strides=2),
]


def test_gradients(row: tuple[Any, ...], check_row: Callable[..., None]) -> None:
    check_row(row)


@pytest.mark.parametrize(
    "how",
    [
        {"pads": [1, 0, 0, 2]},
        *(
            {"auto_pad": auto_pad, "strides": strides}
            for auto_pad in ("SAME_UPPER", "SAME_LOWER", "VALID")
            for strides in ([1, 1], [2, 2], [3, 1])
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("kernel", [(3, 3), (2, 4), (1, 1)], ids=str)
@pytest.mark.parametrize("dims", [None, [("batch", 2, "height", "width")]], ids=["static", "named"])
def test_uneven_and_automatic_padding(
    how: dict[str, Any], kernel: tuple[int, int], dims: Any, make_step: Callable[..., Any]
) -> None:
    """onnxruntime-training ignores `auto_pad` in the gradient. The forward operator is the reference here."""
    x, w = (np.random.default_rng(0).standard_normal(shape) for shape in ((2, 2, 6, 5), (4, 2, *kernel)))
    x, w = x.astype(np.float32), w.astype(np.float32)
    shapes = [*(dims or [x.shape]), w.shape]
    step = make_step(lambda x, w: op.Conv(x, w, **how), shapes)
    output = make_step(lambda x, w: op.Conv(x, w, **how), [x.shape, w.shape]).run([x, w], _zeros(x, w, how))[0]
    cotangent = np.random.default_rng(1).standard_normal(output.shape).astype(np.float32)
    _, to_x, to_w = step.run([x, w], cotangent)

    # The operator is linear in each operand: <c, conv(x, w)> = <dx, x> = <dw, w>, for any other x and w too.
    other_x, other_w = (np.random.default_rng(2).standard_normal(a.shape).astype(np.float32) for a in (x, w))
    along_x = step.run([other_x, w], cotangent)[0]
    along_w = step.run([x, other_w], cotangent)[0]
    np.testing.assert_allclose((to_x * other_x).sum(), (along_x * cotangent).sum(), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose((to_w * other_w).sum(), (along_w * cotangent).sum(), rtol=1e-3, atol=1e-4)


def _zeros(x: Any, w: Any, how: dict[str, Any]) -> Any:
    tracer = Tracer(new_graph("shape"))
    arrays = [tracer.input(name, np.float32, value.shape) for name, value in (("x", x), ("w", w))]
    return np.zeros(op.Conv(*arrays, **how).shape, np.float32)


@pytest.mark.parametrize("spatial_dims", ["static", "named"])
def test_named_dimensions(row: tuple[Any, ...], spatial_dims: str, check_row_with_names: Callable[..., None]) -> None:
    x, *rest = row[2]
    spatial = x[2:] if spatial_dims == "static" else ("depth", "height", "width")[2 - len(x) :]
    check_row_with_names(row, [("batch", x[1], *spatial), *rest])


@pytest.mark.parametrize("place", [4, 16, 28, 29])
def test_channels_whose_number_only_the_weight_knows(place: int, check_row_with_names: Callable[..., None]) -> None:
    x, *rest = ROWS[place][2]
    check_row_with_names(ROWS[place], [("batch", "channels", *x[2:]), *rest])


OUTPUTS: list[tuple[tuple[int, ...], dict[str, Any], tuple[int, ...]]] = [
    *(
        ((5, 4), {"output_shape": size, **how}, tuple(size))
        for size in ([9, 8], [10, 7], [11, 9])
        for how in ({}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"})
    ),
    ((5, 4), {"auto_pad": "SAME_UPPER"}, (10, 8)),
    ((5, 4), {"auto_pad": "SAME_LOWER"}, (10, 8)),
    ((5, 4), {"auto_pad": "VALID"}, (11, 9)),
    ((5, 4), {"output_padding": [1, 0], "pads": [0, 1, 2, 0]}, (10, 8)),
    ((5,), {"output_shape": [10]}, (10,)),
    ((5,), {"auto_pad": "SAME_LOWER"}, (10,)),
    ((2, 3, 2), {"output_shape": [4, 6, 5], "output_padding": [1, 0, 0]}, (4, 6, 5)),
    ((2, 3, 2), {"auto_pad": "SAME_UPPER"}, (4, 6, 4)),
]


@pytest.mark.parametrize("named", [False, True], ids=["static", "named"])
@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize(("size", "how", "output_size"), OUTPUTS, ids=str)
def test_output_shape_decides_the_padding(
    size: tuple[int, ...],
    how: dict[str, Any],
    output_size: tuple[int, ...],
    group: int,
    named: bool,
    make_step: Callable[..., Any],
) -> None:
    rank = len(size)
    x = np.random.default_rng(0).standard_normal((2, 3, *size)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((3, 2, *[3] * rank)).astype(np.float32)
    dims = ("batch", 3, *("depth", "height", "width")[-rank:]) if named else x.shape
    how = {"strides": [2] * rank, "group": group, **how}
    step = make_step(lambda x, w: op.ConvTranspose(x, w, **how), [dims, w.shape])
    cotangent = np.random.default_rng(2).standard_normal((2, 2 * group, *output_size)).astype(np.float32)
    output, to_x, to_w = step.run([x, w], cotangent)
    assert output.shape == cotangent.shape
    product = (output * cotangent).sum()
    np.testing.assert_allclose([(to_x * x).sum(), (to_w * w).sum()], [product, product], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("size", [(6,), (5, 6, 4)], ids=str)
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("strides", [1, 2])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("named", [False, True], ids=["static", "named"])
def test_automatic_padding_of_lines_and_volumes(
    size: tuple[int, ...], group: int, strides: int, auto_pad: str, named: bool, make_step: Callable[..., Any]
) -> None:
    rank = len(size)
    x = np.random.default_rng(0).standard_normal((2, 4, *size)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((4, 4 // group, *(3, 2, 4)[:rank])).astype(np.float32)
    dims = ("batch", 4, *("depth", "height", "width")[-rank:]) if named else x.shape
    how = {"strides": [strides] * rank, "auto_pad": auto_pad, "group": group}
    step = make_step(lambda x, w: op.Conv(x, w, **how), [dims, w.shape])
    output_size = [-(-length // strides) for length in size]
    cotangent = np.random.default_rng(2).standard_normal((2, 4, *output_size)).astype(np.float32)
    output, to_x, to_w = step.run([x, w], cotangent)
    product = (output * cotangent).sum()
    np.testing.assert_allclose([(to_x * x).sum(), (to_w * w).sum()], [product, product], rtol=1e-3, atol=1e-3)


def test_an_output_shape_in_float64(check_row: Callable[..., None]) -> None:
    """By differences, of a size that is not known where the graph is made."""

    def sized(x: Any, w: Any) -> Any:
        longer = op.Concat(x, x, axis=2).with_shape((2, 3, None, 4))
        return op.ConvTranspose(longer, w, strides=[2, 2], output_shape=[11, 7]).with_shape((2, 2, 11, 7))

    check_row(("ConvTranspose", None, [(2, 3, 3, 4), (3, 2, 3, 2)], sized), order=1)


def test_a_weight_of_unknown_shape_is_refused() -> None:
    tracer = Tracer(new_graph("refused"))
    x, w = tracer.input("x", np.float32, (2, 3, 8, 8)), tracer.input("w", np.float32, (4, 3, "k", "k"))
    y = op.Conv(x, w)
    with pytest.raises(UnsupportedOperatorError, match=r"Conv \(nodes 'conv'\): its weight has a shape"):
        backward(tracer, {y.value: y}, [w.value])
