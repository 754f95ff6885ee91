from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import edgeopt
from edgeopt.errors import SignatureError, UnsupportedModelError, UnsupportedOperatorError

W = np.array([[0.5, -1.0], [2.0, 0.25], [-0.75, 1.5]])


def model_of(nodes, inputs, outputs, initializers=(), *, kind=TensorProto.DOUBLE, opset=17):
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in outputs.items()],
        list(initializers),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def energy(*, constant=False, dtype=np.float64):
    """E = sum(tanh(x W)), and an output that has nothing to do with it."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weight = numpy_helper.from_array(W.astype(dtype), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Tanh", ["h"], ["y"]),
        helper.make_node("ReduceSum", ["y"], ["energy"], keepdims=0),
        helper.make_node("Neg", ["other"], ["unrelated"]),
    ]
    if constant:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=weight))
    inputs = {"x": ["n", 3], "other": [2]}
    return model_of(
        nodes, inputs, {"energy": [], "unrelated": [2], "y": ["n", 2]}, [] if constant else [weight], kind=kind
    )


def run(model, **inputs):
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)


X = np.random.default_rng(1).standard_normal((4, 3))
OTHER = np.zeros(2)


def expected():
    slope = 1 - np.tanh(X @ W) ** 2
    return slope @ W.T, X.T @ slope


@pytest.mark.parametrize("constant", [False, True])
def test_gradients_of_inputs_and_weights_in_the_order_asked_for(constant):
    model = edgeopt.gradient(energy(constant=constant), of="energy", wrt=["w", "x"])
    assert [output.name for output in model.graph.output] == ["gradient.w", "gradient.x"]
    assert [value.name for value in model.graph.input] == ["x", "other"]
    to_x, to_w = expected()
    results = run(model, x=X, other=OTHER)
    np.testing.assert_allclose(results[0], to_w, rtol=1e-12)
    np.testing.assert_allclose(results[1], to_x, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_gradient_has_the_models_own_type(dtype):
    [result] = run(
        edgeopt.gradient(energy(dtype=dtype), of="energy", wrt="x"), x=X.astype(dtype), other=OTHER.astype(dtype)
    )
    assert result.dtype == dtype
    np.testing.assert_allclose(
        result, expected()[0], rtol=10 * float(np.finfo(dtype).eps), atol=3 * np.finfo(dtype).eps
    )


def test_a_path_and_a_tensor_that_plays_no_part(tmp_path):
    onnx.save(energy(), tmp_path / "energy.onnx")
    model = edgeopt.gradient(tmp_path / "energy.onnx", of="energy", wrt=["other"])
    np.testing.assert_array_equal(run(model, x=X, other=OTHER)[0], np.zeros(2))


def test_weights_in_a_file_beside_the_model_come_along(tmp_path):
    onnx.save(energy(), tmp_path / "energy.onnx", save_as_external_data=True, location="weights", size_threshold=0)
    assert (tmp_path / "weights").exists()
    model = edgeopt.gradient(tmp_path / "energy.onnx", of="energy", wrt="x")
    np.testing.assert_allclose(run(model, x=X, other=OTHER)[0], expected()[0], rtol=1e-12)
    product = edgeopt.hessian_vector(tmp_path / "energy.onnx", of="energy", wrt="x", along="w")
    assert run(product, x=X, other=OTHER, **{"vector.w": W})[0].shape == X.shape


def test_a_gradient_can_be_differentiated_again():
    nodes = [helper.make_node("Pow", ["x", "three"], ["y"])]
    cube = model_of(nodes, {"x": []}, {"y": []}, [numpy_helper.from_array(np.asarray(3.0), "three")])
    first = edgeopt.gradient(cube, of="y", wrt="x")
    second = edgeopt.gradient(first, of="gradient.x", wrt="x")
    np.testing.assert_allclose(run(second, x=np.asarray(1.5)), [9.0], rtol=1e-14)


def test_saliency_of_a_network_exported_by_torch(tmp_path):
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(27, 1)
    ).eval()
    image = torch.randn(1, 1, 8, 8, requires_grad=True)
    torch.onnx.export(net, (image.detach(),), tmp_path / "net.onnx", dynamo=True, output_names=["score"], verbose=False)
    net(image).sum().backward()
    file = onnx.load(tmp_path / "net.onnx")
    model = edgeopt.gradient(file, of="score", wrt=file.graph.input[0].name)
    [saliency] = run(model, **{file.graph.input[0].name: image.detach().numpy()})
    assert image.grad is not None
    np.testing.assert_allclose(saliency, image.grad.numpy(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("of", "wrt", "message"),
    [
        ("enrgy", ["x"], r"'enrgy' is no output; the model's outputs are \['energy', 'unrelated', 'y'\]"),
        ("y", ["x"], r"of='y'.*shape.*ReduceSum"),
        ("energy", ["z"], r"\['z'\] is no input or initializer.*'w'.*'x'"),
        ("energy", ["x", "x"], "named once"),
        ("energy", [], "named once"),
    ],
)
def test_what_cannot_be_asked_for(of, wrt, message):
    with pytest.raises(SignatureError, match=message):
        edgeopt.gradient(energy(), of=of, wrt=wrt)


def test_integers_random_numbers_and_missing_rules_are_refused():
    ids = model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": []}, {"y": []}, kind=TensorProto.INT64)
    with pytest.raises(SignatureError, match="not floating-point"):
        edgeopt.gradient(ids, of="y", wrt="x")
    true = numpy_helper.from_array(np.asarray(True), "true")
    half = numpy_helper.from_array(np.asarray(0.5, np.float32), "half")
    drop = helper.make_node("Dropout", ["x", "half", "true"], ["y"])
    with pytest.raises(UnsupportedModelError, match="random numbers"):
        edgeopt.gradient(
            model_of([drop], {"x": [1]}, {"y": [1]}, [half, true], kind=TensorProto.FLOAT), of="y", wrt="x"
        )
    custom = model_of([helper.make_node("Own", ["x"], ["y"], domain="mine")], {"x": [1]}, {"y": [1]})
    custom.opset_import.append(helper.make_opsetid("mine", 1))
    with pytest.raises(UnsupportedOperatorError, match="mine::Own"):
        edgeopt.gradient(custom, of="y", wrt="x")


def test_the_value_beside_the_gradient():
    model = edgeopt.gradient(energy(), of="energy", wrt="w", value=True)
    assert [output.name for output in model.graph.output] == ["energy", "gradient.w"]
    value, to_w = run(model, x=X, other=OTHER)
    np.testing.assert_allclose(value, np.tanh(X @ W).sum(), rtol=1e-14)
    np.testing.assert_allclose(to_w, expected()[1], rtol=1e-12)


@pytest.mark.parametrize(
    ("wrt", "along"), [("w", None), (["w", "x"], None), ("x", "w"), (["w"], ["w", "x"]), ("other", "w"), ("w", "other")]
)
def test_products_of_second_derivatives_agree_with_torch(wrt, along):
    names, others = [[*given] if isinstance(given, list) else [given] for given in (wrt, along or wrt)]
    model = edgeopt.hessian_vector(energy(), of="energy", wrt=wrt, along=along)
    assert [output.name for output in model.graph.output] == [f"product.{name}" for name in names]
    assert [value.name for value in model.graph.input] == ["x", "other", *(f"vector.{name}" for name in others)]
    rng = np.random.default_rng(2)
    values = {"x": X, "w": W, "other": OTHER}
    vectors = {name: rng.standard_normal(values[name].shape) for name in others}
    results = run(model, x=X, other=OTHER, **{f"vector.{name}": vector for name, vector in vectors.items()})
    tensors = {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}
    total = torch.tanh(tensors["x"] @ tensors["w"]).sum() + 0 * (tensors["other"] ** 2).sum()
    first = torch.autograd.grad(total, [tensors[name] for name in others], create_graph=True)
    along_vector = torch.zeros(())
    for part, name in zip(first, others, strict=True):
        along_vector = along_vector + (part * torch.tensor(vectors[name])).sum()
    for name, result in zip(names, results, strict=True):
        [wanted] = torch.autograd.grad(
            along_vector, tensors[name], retain_graph=True, allow_unused=True, materialize_grads=True
        )
        np.testing.assert_allclose(result, wanted.numpy(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("wrt", "along"), [([], "w"), ("w", []), ("w", "z")])
def test_products_for_what_is_not_there(wrt, along):
    with pytest.raises(SignatureError):
        edgeopt.hessian_vector(energy(), of="energy", wrt=wrt, along=along)


def test_the_model_that_was_given_stays_as_it_was():
    model = energy()
    before = model.SerializeToString()
    edgeopt.hessian_vector(model, of="energy", wrt="w", along="x")
    edgeopt.gradient(model, of="energy", wrt="w")
    assert model.SerializeToString() == before
