from __future__ import annotations

from typing import Any

import pytest
from torch.export import Dim

from edgeopt.errors import SignatureError
from edgeopt_exporters.given import named_dimensions

SHAPES = {"tokens": (2, 7), "mask": (2, 7)}
ONE = {"x": (2, 7, 3)}


@pytest.mark.parametrize(
    ("given", "shapes", "named"),
    [
        (None, ONE, {}),
        ({"x": {1: "length"}}, ONE, {"x": {1: "length"}}),
        ({"x": {-2: Dim("length", min=2, max=512)}}, ONE, {"x": {1: "length"}}),
        ({1: "length"}, ONE, {"x": {1: "length"}}),
        ({0: "batch", 1: Dim("length")}, ONE, {"x": {0: "batch", 1: "length"}}),
        (["batch", "length", None], ONE, {"x": {0: "batch", 1: "length"}}),
        (({1: Dim("length")},), ONE, {"x": {1: "length"}}),
        ([("batch", "length", 3)], ONE, {"x": {0: "batch", 1: "length"}}),
        ({"x": {0: Dim.DYNAMIC, 1: Dim.AUTO, 2: Dim.STATIC}}, ONE, {"x": {0: "batch", 1: "x_1"}}),
        ({"tokens": None, "mask": {1: "m"}}, SHAPES, {"mask": {1: "m"}}),
        (({1: "s"}, {1: "s"}), SHAPES, {"tokens": {1: "s"}, "mask": {1: "s"}}),
        ((None, (None, "s")), SHAPES, {"mask": {1: "s"}}),
    ],
)
def test_every_form_becomes_names_by_input_and_axis(given: Any, shapes: Any, named: Any) -> None:
    assert named_dimensions(given, shapes, dynamic_batch=True) == named


def test_axis_0_may_be_fixed_where_the_batch_is() -> None:
    assert named_dimensions({"x": {0: Dim.STATIC}}, ONE, dynamic_batch=False) == {}


@pytest.mark.parametrize(
    ("given", "shapes", "message"),
    [
        ("batch", ONE, r"takes names by input and axis, \{'x': \{0: 'batch'\}\}; got 'batch'"),
        ({"y": {0: "n"}}, ONE, r"names \['y'\], but the inputs are \['x'\]"),
        ({0: "n"}, SHAPES, "but the inputs are"),
        ([{1: "s"}], SHAPES, "has 1 entries for the inputs"),
        ({"x": "batch"}, ONE, r"is 'batch'; give \{axis: name\}"),
        ({"x": ["batch"]}, ONE, "has 1 entries, but 'x' has 3 axes"),
        ({"x": {3: "n"}}, ONE, r"axis 3 of 'x', whose shape is \(2, 7, 3\)"),
        ({"x": {True: "n"}}, ONE, "axis True"),
        ({"x": {1: "n", -2: "m"}}, ONE, "axis 1 twice"),
        ({"x": {1: 8}}, ONE, r"\['x'\]\[1\] is 8, but the size is 7"),
        ({"x": {1: ""}}, ONE, "give the dimension a name"),
        ({"x": {1: 2 * Dim("half")}}, ONE, "is 2[*]half; give the dimension a name"),
        ({"x": {1: Dim}}, ONE, "is the class torch.Dim; give the dimension a name"),
        ({"x": {0: Dim.STATIC}}, ONE, "give dynamic_batch=False"),
        ({"x": {0: 2}}, ONE, "give dynamic_batch=False"),
    ],
)
def test_other_forms_are_refused(given: Any, shapes: Any, message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        named_dimensions(given, shapes, dynamic_batch=True)
