from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from edgeopt.autodiff import backward
from edgeopt.errors import UnsupportedOperatorError
from edgeopt.lowering import lower
from edgeopt.tracing import Tracer, new_graph, new_model, op


def gradient_of_dropout(ratio: Any, training: Any, ask_for_mask: bool = False) -> tuple[Any, Any]:
    """Output and gradient of a dropout of ones."""
    tracer = Tracer(new_graph("dropout"))
    x = tracer.input("x", np.float32, ("batch", 50))
    operands = [x, *(None if value is None else np.asarray(value) for value in (ratio, training))]
    outputs = tracer.emit("Dropout", *operands, outputs=2 if ask_for_mask else 1)
    (gradient,) = backward(tracer, {outputs[0].value: x}, [x.value])
    assert gradient is not None
    tracer.output(outputs[0], "y")
    tracer.output(gradient, "gradient")
    zero = tracer.constant(np.int64(0))
    lower(tracer, seed=zero, draws=zero)
    session = onnxruntime.InferenceSession(
        ir.serde.serialize_model(new_model(tracer.graph)).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    y, dx = session.run(["y", "gradient"], {"x": np.ones((40, 50), np.float32)})
    return y, dx


@pytest.mark.parametrize("ask_for_mask", [False, True])
@pytest.mark.parametrize("ratio", [np.float32(0.25), np.float64(0.5), None])
def test_the_gradient_uses_the_mask_of_the_forward_pass(ratio: Any, ask_for_mask: bool) -> None:
    y, gradient = gradient_of_dropout(ratio, True, ask_for_mask)
    np.testing.assert_array_equal(y, gradient)
    share = 0.5 if ratio is None else float(ratio)
    assert set(np.unique(y)) == {0.0, np.float32(1 / (1 - share))}


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_nothing_and_everything_dropped(ratio: float) -> None:
    y, gradient = gradient_of_dropout(np.float32(ratio), True)
    np.testing.assert_array_equal(y, np.full_like(y, 1 - ratio))
    np.testing.assert_array_equal(gradient, np.full_like(y, 1 - ratio))


@pytest.mark.parametrize("training", [False, None])
def test_dropout_is_the_identity_outside_training(training: bool | None) -> None:
    y, gradient = gradient_of_dropout(np.float32(0.5), training)
    np.testing.assert_array_equal(y, np.ones_like(y))
    np.testing.assert_array_equal(gradient, np.ones_like(y))


def test_a_mode_that_only_the_run_knows_is_refused() -> None:
    tracer = Tracer(new_graph("dropout"))
    x, training = tracer.input("x", np.float32, (3,)), tracer.input("training", np.bool_, ())
    y = op.Dropout(x, np.float32(0.5), training)
    with pytest.raises(UnsupportedOperatorError, match="training mode is not known"):
        backward(tracer, {y.value: y}, [x.value])
