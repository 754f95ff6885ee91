"""Files that people ship, as they are: each trains on stock ONNX Runtime, and its gradients are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

# Of each file: how it is exported, the sizes of its dimensions, the learning rate.
SILERO = {
    "example_inputs": {"input": np.zeros((1, 576)), "state": np.zeros((2, 1, 128))},
    "dynamic_shapes": {"state": {1: "batch"}},
    "fixed_inputs": {"sr": 16000},
}
FILES: dict[str, dict[str, Any]] = {
    "magika_v3_3.onnx": {"largest": {"bytes": 256}},
    "mtcnn_pnet.onnx": {"sizes": {"M1": 14, "M2": 16}},
    "mtcnn_rnet.onnx": {"output": "biased_tensor_name1"},
    "oww_alexa_v0.1.onnx": {"output": "onnx::Sigmoid_12"},
    "oww_embedding_model.onnx": {},
    "oww_hey_rhasspy_v0.1.onnx": {"output": "/7/Gemm_output_0"},
    "oww_melspectrogram.onnx": {"lr": 1e-6, "sizes": {"samples": 1600}},
    "ppocr_mobile_v2_cls.onnx": {"output": "linear_1.tmp_1", "sizes": {"x_dim_2": 48, "x_dim_3": 96}},
    "ppocr_v4_det.onnx": {
        "output": "p2o.Add.281",
        "sizes": {"p2o.DynamicDimension.1": 32, "p2o.DynamicDimension.2": 64},
        "lr": 1e-5,
    },
    "silero_vad_16k_sequence.onnx": {"sizes": {"sequence_length": 3}},
    "silero_vad_v6.onnx": SILERO,
    "surfaces_gradient_boosting_regressor.onnx": {},
}


@pytest.mark.parametrize("name", FILES)
def test_it_trains(load: Callable[..., Any], train: Callable[..., list[float]], name: str) -> None:
    losses = train(load(name), **FILES[name])
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", FILES)
def test_its_gradients_are_right(load: Callable[..., Any], check: Callable[..., None], name: str) -> None:
    settings = {key: value for key, value in FILES[name].items() if key != "lr"}
    check(load(name), **settings)
