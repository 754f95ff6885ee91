"""ONNX Runtime's own operators said with others: its kernels compute the same, where its CPU provider has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
import torch

X = {"batched_x": (2, 3, 8)}
IMAGE = {"batched_x": (2, 4, 5, 5)}
MATRICES = {"batched_a": (3, 4), "b": (5, 4), "c": (5,)}
PAIR = {"batched_x": (2, 3, 8), "batched_skip": (2, 3, 8)}
IDS = np.asarray([[1, 2, 0], [3, 3, 4]], np.int32)
SEGMENTS = np.asarray([[0, 1, 1], [0, 0, 0]], np.int32)
PLACES = np.asarray([[3, 1, 0], [0, 1, 2]], np.int32)
TABLES = {"words": (5, 8), "places": (4, 8)}
NORM = {"gamma": (8,), "beta": (8,)}
GRID = np.random.default_rng(0).uniform(-0.9, 0.9, (2, 3, 3, 2)).astype(np.float32)
CONV = {"group": 2, "pads": [1, 1, 1, 1], "strides": [2, 2]}


def single(number: Any) -> Any:
    return np.asarray(number, np.float32)


Row = tuple[str, Mapping[str, Any], Mapping[str, Any]]

WITH_KERNEL: list[Row] = [
    ("SkipLayerNormalization", {**PAIR, **NORM, "bias": (8,)}, {}),
    ("SkipLayerNormalization", {"batched_x": (2, 3, 8), "skip": (3, 8), "gamma": (8,)}, {"epsilon": 0.01}),
    ("SkipSimplifiedLayerNormalization", {**PAIR, "gamma": (8,), "bias": (8,)}, {}),
    ("SkipSimplifiedLayerNormalization", {**PAIR, "gamma": (8,)}, {"epsilon": 0.01}),
    *(
        (operator, inputs, {})
        for operator in ("FastGelu", "BiasGelu")
        for inputs in ({**X, "bias": (8,)}, X)
        if operator == "FastGelu" or len(inputs) == 2
    ),
    ("Gelu", X, {}),
    ("QuickGelu", X, {}),
    ("QuickGelu", X, {"alpha": 1.0}),
    *(
        ("FusedMatMul", {"batched_a": a, "b": b}, {"transA": turn_a, "transB": turn_b, "alpha": 0.5})
        for turn_a, a in enumerate([(2, 3, 4, 5), (2, 3, 5, 4)])
        for turn_b, b in enumerate([(5, 6), (6, 5)])
    ),
    ("FusedMatMul", {"a": (4, 2, 3, 5), "b": (5, 2, 3, 6)}, {"transBatchA": 1, "transBatchB": 1}),
    ("FusedMatMul", {"a": (5, 2, 3, 4), "b": (2, 3, 5, 6)}, {"transBatchA": 1, "transA": 1}),
    ("FusedMatMul", {"a": (2, 3, 4, 5), "b": (6, 2, 3, 5)}, {"transBatchB": 1, "transB": 1}),
    ("FusedMatMul", {"a": (5,), "b": (5, 6)}, {"transA": 1}),
    ("TransposeMatMul", {"a": (5, 4), "b": (5, 6)}, {"transA": 1}),
    ("FusedGemm", {"batched_a": (3, 4), "b": (4, 5)}, {"activation": "Relu"}),
    *(
        ("FusedGemm", MATRICES, {"activation": name, "transB": 1, "alpha": 0.5, "beta": 2.0, **numbers})
        for name, numbers in [
            ("Elu", {"activation_alpha": 0.5}),
            ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
            ("LeakyRelu", {"activation_alpha": 0.2}),
            ("ParametricSoftplus", {"activation_alpha": 0.5, "activation_beta": 2.0}),
            ("ScaledTanh", {"activation_alpha": 0.5, "activation_beta": 2.0}),
            ("Sigmoid", {}),
            ("Softplus", {}),
            ("Softsign", {}),
            ("Tanh", {}),
            ("ThresholdedRelu", {"activation_alpha": 0.5}),
        ]
    ),
    *(
        ("FusedConv", {**IMAGE, "w": (6, 2, 3, 3), "b": (6,)}, {"activation": name, **CONV, **numbers})
        for name, numbers in [
            ("Clip", {"activation_params": [-0.5, 0.7]}),
            ("HardSigmoid", {"activation_params": [0.3, 0.4]}),
            ("LeakyRelu", {"activation_params": [0.2]}),
            ("Relu", {}),
            ("Sigmoid", {}),
            ("Tanh", {}),
        ]
    ),
    ("FusedConv", {**IMAGE, "w": (6, 4, 3, 3), "b": (6,), "batched_sum": (2, 6, 3, 3)}, {"activation": "Relu"}),
    ("CDist", {"a": (3, 4), "b": (5, 4)}, {"metric": "euclidean"}),
    ("CDist", {"a": (3, 4), "b": (5, 4)}, {}),
    ("Inverse", {"x": np.asarray([[[2, 1, 0], [0, 3, 1], [1, 0, 4]]], np.float32)}, {}),
    ("Pad", {"x": (2, 3), "pads": np.asarray([[0, 1, 0, 2]]), "value": np.asarray([0.5], np.float32)}, {}),
    ("Trilu", {"batched_x": (3, 4), "k": np.asarray(1)}, {"upper": 0}),
    ("GatherND", {"x": (3, 4), "indices": np.asarray([[1, 2], [2, 0]])}, {}),
    ("GridSample", {"batched_x": (2, 3, 4, 4), "batched_grid": GRID}, {}),
    ("Range", {"a": single([0.5]), "b": single([4.2]), "c": single(1.1)}, {}),
]


@pytest.mark.parametrize("row", WITH_KERNEL, ids=lambda row: row[0])
def test_kernels_compute_the_same(row: Row, one_node: Callable[..., Any], same_results: Callable[..., Any]) -> None:
    operator, inputs, attributes = row
    model, values = one_node(f"com.microsoft::{operator}", inputs, attributes)
    canonical = same_results(model, values, order=1, tolerance=2e-5)
    assert canonical


def test_second_derivatives(one_node: Callable[..., Any], same_results: Callable[..., Any]) -> None:
    for operator, inputs, attributes in (WITH_KERNEL[0], WITH_KERNEL[2], WITH_KERNEL[4]):
        model, values = one_node(f"com.microsoft::{operator}", inputs, attributes)
        same_results(model, values, order=2, tolerance=2e-5)


@pytest.mark.parametrize("operator", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_sum_is_an_output(operator: str, one_node: Callable[..., Any], same_results: Callable[..., Any]) -> None:
    model, values = one_node(f"com.microsoft::{operator}", {**PAIR, "gamma": (8,)}, {}, outputs=4)
    # Its CPU kernels do not write the statistics.
    for position in (1, 2):
        model.graph.node[0].output[position] = ""
    del model.graph.output[1:3]
    same_results(model, values, order=1)


@pytest.mark.parametrize("outputs", [1, 2])
def test_simplified_layer_normalization(
    outputs: int, one_node: Callable[..., Any], same_results: Callable[..., Any]
) -> None:
    """ONNX Runtime has it in the standard domain."""
    model, values = one_node("SimplifiedLayerNormalization", {**X, "scale": (3, 8)}, {"axis": 1}, outputs)
    same_results(model, values, order=1)


@pytest.mark.parametrize(
    "inputs",
    [
        {"segments": SEGMENTS, **TABLES, "kinds": (2, 8), **NORM, "mask": np.asarray([[1, 1, 0], [1, 1, 1]], np.int32)},
        {"segments": None, **TABLES, "kinds": None, **NORM, "mask": None, "at": PLACES},
        {"segments": None, **TABLES, "kinds": None, **NORM},
    ],
    ids=["segments and mask", "positions", "words"],
)
def test_embed_layer_normalization(
    inputs: Mapping[str, Any], one_node: Callable[..., Any], same_results: Callable[..., Any]
) -> None:
    model, values = one_node("com.microsoft::EmbedLayerNormalization", {"ids": IDS, **inputs}, {}, outputs=2)
    model.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.INT32
    same_results(model, values, order=1)


def split_gelu(batched_x: Any, bias: Any) -> Any:
    left, right = (torch.tensor(batched_x) + torch.tensor(bias)).chunk(2, -1)
    return left * torch.nn.functional.gelu(right)


def limited_swiglu(batched_x: Any) -> Any:
    gate, linear = batched_x[..., :4].clip(max=1), batched_x[..., 4:].clip(-1, 1)
    return gate / (1 + np.exp(-1.7 * gate)) * (linear + 1)


def complex_product(conjugate: bool) -> Callable[..., Any]:
    def product(batched_x: Any, batched_skip: Any) -> Any:
        # The real parts stand in front of the imaginary ones.
        a, b = (x[..., :4] + 1j * x[..., 4:] for x in (batched_x, batched_skip))
        y = a * (b.conj() if conjugate else b)
        return np.concatenate([y.real, y.imag], -1)

    return product


def group_norm(batched_x: Any, gamma: Any, beta: Any, **added: Any) -> list[Any]:
    total = torch.tensor(batched_x)
    if added:
        total = total + torch.tensor(added["batched_skip"])[:, None, None] + torch.tensor(added["bias"])
    scale, bias = torch.tensor(gamma), torch.tensor(beta)
    y = torch.nn.functional.group_norm(total.permute(0, 3, 1, 2), 2, scale, bias).permute(0, 2, 3, 1)
    return [y, total] if added else [torch.nn.functional.silu(y)]


def nhwc_conv(batched_x: Any, w: Any, b: Any) -> Any:
    image = torch.tensor(batched_x).permute(0, 3, 1, 2)
    return torch.nn.functional.conv2d(image, torch.tensor(w), torch.tensor(b), padding=1).permute(0, 2, 3, 1)


def gated_bias(batched_q: Any, qb: Any, rel: Any, w: Any, b: Any, eco: Any) -> Any:
    query = torch.tensor(batched_q + qb).reshape(2, 3, 2, 4).transpose(1, 2)
    gates = (query @ torch.tensor(w) + torch.tensor(b)).view(2, 2, 3, 2, 3).sum(-1)
    update, reset = torch.sigmoid(gates).chunk(2, -1)
    return (update * (reset * torch.tensor(eco) - 1.0) + 2.0) * torch.tensor(rel)


def scaled_silu(batched_x: Any) -> Any:
    return 0.5 * batched_x / (1 + np.exp(-0.5 * batched_x))


def bucketed_bias(both: bool) -> Callable[..., Any]:
    """8 buckets, the last one for distances from 6 on; with both directions, 4 for each."""

    def bucket(distance: int) -> int:
        if both:
            near = [0, 1, 2, 2, 3, 3, 3, 3, 3][abs(distance)]
            return near + 4 * (distance > 0)
        return [0, 1, 2, 3, 4, 6, 7, 7, 7][max(-distance, 0)]

    def bias(table: Any, queries: Any, keys: Any) -> Any:
        buckets = [[bucket(key - query) for key in range(int(keys[0]))] for query in range(int(queries[0]))]
        return table[np.asarray(buckets)].transpose(2, 0, 1)[None]

    return bias


WITHOUT_KERNEL: list[tuple[str, Mapping[str, Any], Mapping[str, Any], Callable[..., Any]]] = [
    ("BiasAdd", {**X, "bias": (8,), "skip": (2, 3, 8)}, {}, lambda batched_x, bias, skip: batched_x + bias + skip),
    ("BiasDropout", {**X, "bias": (8,), "skip": (2, 3, 8)}, {}, lambda batched_x, bias, skip: batched_x + bias + skip),
    ("BiasSplitGelu", {**X, "bias": (8,)}, {}, split_gelu),
    (
        "BiasSoftmax",
        {"batched_x": (2, 4, 3, 3), "bias": (1, 1, 3)},
        {"axis": 3, "is_inner_broadcast": 0},
        lambda batched_x, bias: torch.softmax(torch.tensor(batched_x + bias), -1),
    ),
    ("ComplexMul", PAIR, {}, complex_product(conjugate=False)),
    ("ComplexMulConj", PAIR, {}, complex_product(conjugate=True)),
    ("ScaledSiLU", X, {"alpha": 0.5}, scaled_silu),
    (
        "SwiGLU",
        PAIR,
        {},
        lambda batched_x, batched_skip: torch.nn.functional.silu(torch.tensor(batched_x)) * torch.tensor(batched_skip),
    ),
    ("SwiGLU", X, {"limit": 1.0, "activation_alpha": 1.7, "activation_beta": 1.0}, limited_swiglu),
    (
        "GatedAdd",
        {**PAIR, "batched_gate": (2, 3, 1)},
        {},
        lambda batched_x, batched_skip, batched_gate: batched_x + batched_skip * batched_gate,
    ),
    (
        "FusedMatMulActivation",
        {"a": (4, 5), "b": (5, 6)},
        {"activation": "Relu"},
        lambda a, b: np.maximum(a @ b, 0),
    ),
    (
        "GemmFastGelu",
        {**X, "w": (8, 4), "b": (4,)},
        {},
        lambda batched_x, w, b: torch.nn.functional.gelu(torch.tensor(batched_x @ w + b), approximate="tanh"),
    ),
    ("GroupNorm", {"batched_x": (2, 3, 3, 8), **NORM}, {"groups": 2, "activation": 1}, group_norm),
    (
        "SkipGroupNorm",
        {"batched_x": (2, 3, 3, 8), **NORM, "batched_skip": (2, 8), "bias": (8,)},
        {"groups": 2, "activation": 0},
        group_norm,
    ),
    ("NhwcConv", {"batched_x": (2, 5, 5, 4), "w": (6, 4, 3, 3), "b": (6,)}, {"pads": [1, 1, 1, 1]}, nhwc_conv),
    (
        "ConvTransposeWithDynamicPads",
        {**IMAGE, "w": (4, 3, 3, 3), "pads": None, "b": (3,)},
        {"strides": [2, 2]},
        lambda batched_x, w, b: torch.nn.functional.conv_transpose2d(
            torch.tensor(batched_x), torch.tensor(w), torch.tensor(b), stride=2
        ),
    ),
    (
        "GatedRelativePositionBias",
        {"batched_q": (2, 3, 8), "qb": (8,), "rel": (1, 2, 3, 3), "w": (4, 6), "b": (6,), "eco": (1, 2, 1, 1)},
        {"num_heads": 2},
        gated_bias,
    ),
    *(
        (
            "RelativePositionBias",
            {"table": (8, 2), "queries": np.asarray([9]), "keys": np.asarray([9])},
            {"max_distance": 6, "is_bidirectional": int(both)},
            bucketed_bias(both),
        )
        for both in (False, True)
    ),
    ("TorchEmbedding", {"table": (5, 3), "ids": np.asarray([[1, 1], [0, 4]])}, {}, lambda table, ids: table[ids]),
]


@pytest.mark.parametrize("row", WITHOUT_KERNEL, ids=lambda row: row[0])
def test_what_only_other_providers_compute(
    row: Any, one_node: Callable[..., Any], same_results: Callable[..., Any]
) -> None:
    operator, inputs, attributes, reference = row

    def results(**values: Any) -> list[Any]:
        found = reference(**values)
        return found if isinstance(found, list) else [found]

    model, values = one_node(f"com.microsoft::{operator}", inputs, attributes, 2 if operator == "SkipGroupNorm" else 1)
    same_results(model, values, order=1, reference=results)


def test_a_constant_axis(one_node: Callable[..., Any], same_results: Callable[..., Any]) -> None:
    model, values = one_node("com.microsoft::ExpandDims", {**X, "axis": np.asarray(1, np.int32)}, {})
    model.graph.initializer.append(onnx.numpy_helper.from_array(values.pop("axis"), "axis"))
    del model.graph.input[1]
    same_results(model, values, order=1)
