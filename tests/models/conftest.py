"""Where the files are, and what is done with each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

import edgeopt
from edgeopt.testing import check_gradients
from edgeopt_exporters.onnx_file import from_onnx
from edgeopt_runtime import TrainingSession

PACKAGED = Path(__file__).parents[2] / "build" / "models"
# onnx ships classic networks whose weights are written as ConstantOfShape.
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


@pytest.fixture(scope="session")
def load() -> Callable[[str], onnx.ModelProto]:
    """A file by its name."""

    def load_file(name: str) -> onnx.ModelProto:
        path = LIGHT / name if name.startswith("light_") else PACKAGED / name
        assert path.exists(), f"{path} is missing; `make build/models/stamp` fetches it"
        return onnx.load(path)

    return load_file


@pytest.fixture(scope="session")
def resize() -> Callable[..., None]:
    """Make a network smaller, in place.

    Its images get `image` pixels on each side; `widths` are other numbers for sizes in the shapes of weights and of
    Reshape nodes; the last AveragePool, which reads all that is left of an image, gets another `window`.
    """

    def change(
        model: onnx.ModelProto,
        *,
        image: int | None = None,
        widths: Mapping[int, int] | None = None,
        window: int | None = None,
    ) -> None:
        del model.graph.value_info[:]
        for value in model.graph.input:
            for dim in value.type.tensor_type.shape.dim[2:]:
                dim.dim_value = image if image and dim.dim_value == 224 else dim.dim_value
        for node in model.graph.node:
            for attribute in node.attribute:
                if window and node.op_type == "AveragePool" and attribute.name == "kernel_shape":
                    attribute.ints[:] = [window] * len(attribute.ints)
        for tensor in model.graph.initializer:
            if widths and tensor.data_type == onnx.TensorProto.INT64:
                array = onnx.numpy_helper.to_array(tensor)
                changed = np.asarray([widths.get(int(size), int(size)) for size in array.flat], np.int64)
                tensor.CopyFrom(onnx.numpy_helper.from_array(changed.reshape(array.shape), tensor.name))

    return change


def fresh(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Random parameters and statistics to start from, for a file without."""
    random = np.random.default_rng(2)
    values = {}
    for name, array in weights.items():
        if array.ndim > 1:
            drawn = random.standard_normal(array.shape) * np.sqrt(2 / np.prod(array.shape[1:]))
        else:
            drawn = random.uniform(0.5, 1.0, array.shape)
        values[name] = drawn.astype(array.dtype)
    return values


def random_batch(specs: Any, sizes: dict[str, int], largest: dict[str, int]) -> dict[str, Any]:
    random = np.random.default_rng(0)
    batch = {}
    for spec in specs:
        shape = [dim if isinstance(dim, int) else sizes.get(dim, 2) for dim in spec.shape]
        integers = np.dtype(spec.dtype).kind in "iu"
        values = random.integers(0, largest.get(spec.name, 2), shape) if integers else random.standard_normal(shape)
        batch[spec.name] = np.asarray(values, spec.dtype)
    return batch


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., list[float]]:
    """The losses of 20 steps towards targets beside the first predictions, on one batch."""

    def run(
        model: onnx.ModelProto,
        *,
        lr: float = 1e-4,
        from_scratch: bool = False,
        sizes: dict[str, int] | None = None,
        largest: dict[str, int] | None = None,
        **settings: Any,
    ) -> list[float]:
        bundle = edgeopt.export(
            model, loss=edgeopt.losses.MSE(), optimizer=edgeopt.optimizers.AdamW(lr=lr, weight_decay=0.0), **settings
        )
        if from_scratch:
            weights = [spec.name for spec in bundle.manifest.tensors if spec.role in ("parameter", "buffer")]
            bundle = replace(bundle, state={**bundle.state, **fresh({name: bundle.state[name] for name in weights})})
        bundle.save(tmp_path / "model")
        session = TrainingSession.load(tmp_path / "model")
        inputs = [spec for spec in bundle.manifest.inputs if spec.kind == "model"]
        (target,) = (spec for spec in bundle.manifest.inputs if spec.kind == "loss")
        batch = random_batch(inputs, sizes or {}, largest or {})
        predicted = session.predict(batch)
        output = settings.get("output") or bundle.manifest.outputs[0].name
        prediction = np.asarray(predicted[output] if isinstance(predicted, dict) else predicted)
        noise = np.random.default_rng(1).standard_normal(prediction.shape)
        batch[target.name] = np.asarray(prediction + 0.5 * noise, prediction.dtype)
        return [float(session.step(batch)["loss"]) for _ in range(20)]

    return run


@pytest.fixture
def check() -> Callable[..., None]:
    """The gradients of some parameters, first and last among them, against differences in float64."""

    def run(
        model: onnx.ModelProto,
        *,
        tensors: int = 6,
        from_scratch: bool = False,
        sizes: dict[str, int] | None = None,
        largest: dict[str, int] | None = None,
        **settings: Any,
    ) -> None:
        examples = settings.pop("example_inputs", None)
        forward = from_onnx(model, examples, **settings)
        specs = [value for value in forward.train.model.graph.inputs if value.name in forward.train.inputs]
        batch = random_batch([_Spec(value) for value in specs], sizes or {}, largest or {})
        names = list(forward.parameters)
        chosen = {names[round(i)] for i in np.linspace(0, len(names) - 1, tensors)}
        state = {**forward.parameters, **forward.buffers}
        if from_scratch:
            state = fresh(state)
        check_gradients(forward.train.model, {**batch, **state}, wrt=sorted(chosen), directions=1, step=1e-8)

    return run


class _Spec:
    """Name, type and shape of a graph's input, as a manifest has them."""

    def __init__(self, value: Any) -> None:
        self.name = value.name
        self.dtype = value.dtype.numpy()
        self.shape = [dim if isinstance(dim, int) else dim.value for dim in value.shape]
