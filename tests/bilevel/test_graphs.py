from __future__ import annotations

from typing import Any

import mlxtend.data
import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper, parser

from edgeopt import bilevel
from edgeopt.errors import SignatureError
from edgeopt_runtime.errors import BatchError, ExecutionError

# Logistic regression with a penalty of its own for each weight, and the same without a penalty.
LOWER = """<ir_version: 9, opset_import: ["" : 20]>
lower (double[n, d] features, double[n] signs, double[d] w, double b, double[d] penalty) => (double loss)
<double half = {0.5}> {
    h = MatMul(features, w)  z = Add(h, b)  margin = Mul(signs, z)  negative = Neg(margin)
    each = Softplus(negative)  fit = ReduceMean <keepdims = 0> (each)
    strength = Exp(penalty)  squared = Mul(w, w)  weighted = Mul(strength, squared)
    total = ReduceSum <keepdims = 0> (weighted)  bb = Mul(b, b)  all = Add(total, bb)  small = Mul(all, half)
    loss = Add(fit, small)
}"""
UPPER = """<ir_version: 9, opset_import: ["" : 20]>
upper (double[k, d] features, double[k] signs, double[d] w, double b) => (double loss) {
    h = MatMul(features, w)  z = Add(h, b)  margin = Mul(signs, z)  negative = Neg(margin)
    each = Softplus(negative)  loss = ReduceMean <keepdims = 0> (each)
}"""


def lower_of(features, signs, w, b, penalty):
    fit = torch.nn.functional.softplus(-signs * (features @ w + b)).mean()
    return fit + 0.5 * ((penalty.exp() * w**2).sum() + b**2)


def upper_of(features, signs, w, b):
    return torch.nn.functional.softplus(-signs * (features @ w + b)).mean()


def data(seed, count):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((count, 4))
    return {"features": features, "signs": np.sign(features @ [1.0, -2.0, 0.0, 0.0] + 0.5 * rng.standard_normal(count))}


TRAIN, VALID = data(0, 12), data(1, 20)
RNG = np.random.default_rng(2)
X0 = {"penalty": RNG.standard_normal(4)}
Y0 = {"w": RNG.standard_normal(4), "b": np.asarray(0.3)}
VECTOR = {"w": RNG.standard_normal(4), "b": np.asarray(-0.7)}


@pytest.fixture(scope="module")
def problem():
    return bilevel.from_onnx(
        lower=parser.parse_model(LOWER), upper=parser.parse_model(UPPER), x="penalty", y=["w", "b"], threads=1
    )


def tensors(*groups):
    return {name: torch.tensor(value, requires_grad=True) for group in groups for name, value in group.items()}


def constants(batch):
    return {name: torch.tensor(value) for name, value in batch.items()}


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name].detach().numpy(), rtol=1e-12, atol=1e-15)


def test_derivatives_agree_with_torch(problem):
    t = tensors(X0, Y0)
    loss = lower_of(**constants(TRAIN), **t)
    first = torch.autograd.grad(loss, [t["w"], t["b"]], create_graph=True)
    same(problem.lower_gradient(X0, Y0, TRAIN), dict(zip(["w", "b"], first, strict=True)))
    along = first[0] @ torch.tensor(VECTOR["w"]) + first[1] * torch.tensor(VECTOR["b"])
    to_w, to_b, to_penalty = torch.autograd.grad(along, [t["w"], t["b"], t["penalty"]])
    same(problem.hessian_vector(X0, Y0, VECTOR, TRAIN), {"w": to_w, "b": to_b})
    same(problem.cross_vector(X0, Y0, VECTOR, TRAIN), {"penalty": to_penalty})
    loss = upper_of(**constants(VALID), w=t["w"], b=t["b"])
    to_w, to_b = torch.autograd.grad(loss, [t["w"], t["b"]])
    found = problem.upper(X0, Y0, VALID)
    np.testing.assert_allclose(found.loss, loss.item(), rtol=1e-14)
    same(found.to_y, {"w": to_w, "b": to_b})
    np.testing.assert_array_equal(found.to_x["penalty"], np.zeros(4))


def test_penalties_are_learned(problem):
    """Against differences of the implicit function, with weights that torch finds by Newton's method."""

    def implicit(penalty):
        y = torch.zeros(5, dtype=torch.float64)
        held = torch.tensor(penalty)

        def loss(y):
            return lower_of(**constants(TRAIN), w=y[:4], b=y[4], penalty=held)

        for _ in range(12):
            matrix = torch.autograd.functional.hessian(loss, y)
            slope = torch.autograd.functional.jacobian(loss, y)
            y = y - torch.linalg.solve(matrix, slope)
        return upper_of(**constants(VALID), w=y[:4], b=y[4]).item()

    result = bilevel.lancbio(
        problem, X0, Y0, upper_lr=0.5, lower_lr=0.3, lower_steps=40, iterations=60, m=5,
        lower_data=TRAIN, upper_data=VALID,
    )  # fmt: skip
    assert implicit(result.x["penalty"]) < implicit(X0["penalty"]) - 0.01

    still = bilevel.lancbio(
        problem, X0, Y0, upper_lr=lambda k: 1.0 if k == 9 else 1e-300, lower_lr=0.3, lower_steps=80, iterations=10,
        m=10, lower_data=TRAIN, upper_data=VALID,
    )  # fmt: skip
    np.testing.assert_allclose(still.history[-1].upper_loss, implicit(X0["penalty"]), rtol=1e-9)
    gradient = X0["penalty"] - still.x["penalty"]
    for i, direction in enumerate(np.eye(4)):
        difference = (implicit(X0["penalty"] + 1e-5 * direction) - implicit(X0["penalty"] - 1e-5 * direction)) / 2e-5
        np.testing.assert_allclose(gradient[i], difference, rtol=1e-5, atol=1e-9)


def test_penalties_tell_real_measurements_from_noise(problem):
    """Thirteen measurements of wines and as many columns of noise; two cultivars; 45 wines for each level."""
    wines, cultivars = mlxtend.data.wine_data()
    rng = np.random.default_rng(0)
    order = rng.permutation(np.flatnonzero(cultivars > 0))
    wines, signs = wines[order], np.where(cultivars[order] == 1, 1.0, -1.0)
    wines = (wines - wines.mean(0)) / wines.std(0)
    features = np.concatenate([wines, rng.standard_normal(wines.shape)], axis=1)
    train, valid, test = (
        {"features": features[part], "signs": signs[part]} for part in (slice(45), slice(45, 90), slice(90, None))
    )
    x, y = {"penalty": np.full(26, -3.0)}, {"w": np.zeros(26), "b": np.zeros(())}
    settings: dict[str, Any] = {"lower_lr": 0.3, "lower_steps": 20, "lower_data": train, "upper_data": valid}
    before = bilevel.lancbio(problem, x, y, upper_lr=1e-300, iterations=30, **settings)
    after = bilevel.lancbio(problem, x, y, upper_lr=10.0, iterations=100, **settings)
    assert after.history[-1].upper_loss < 0.6 * before.history[-1].upper_loss
    assert problem.upper(after.x, after.y, test).loss < 0.8 * problem.upper(before.x, before.y, test).loss
    assert after.x["penalty"][:13].mean() < after.x["penalty"][13:].mean() - 0.2


def weighted(value, kind):
    """y·y·w - 2 y·x with `w` an initializer, a constant, or an initializer that the graph's inputs list too."""
    inputs = "double[2] x, double[2] y" + (", double[2] w" if kind == "both" else "")
    text = f"""<ir_version: 9, opset_import: ["" : 20]> g ({inputs}) => (double[1] loss) {{
        yy = Mul(y, y)  curved = Mul(yy, w)  xy = Mul(x, y)  two = Add(xy, xy)  d = Sub(curved, two)
        loss = ReduceSum <keepdims = 1> (d)
    }}"""
    model = parser.parse_model(text)
    tensor = numpy_helper.from_array(np.array(value), "w")
    if kind == "constant":
        model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=tensor))
    else:
        model.graph.initializer.append(tensor)
    return model


@pytest.mark.parametrize("kind", ["initializer", "constant", "both"])
def test_weights_in_the_files_can_be_variables(kind, tmp_path):
    onnx.save(weighted([1.0, 2.0], kind), tmp_path / "lower.onnx")
    upper = weighted([3.0, 4.0], kind)
    before = upper.SerializeToString()
    problem = bilevel.from_onnx(lower=tmp_path / "lower.onnx", upper=upper, x=["w", "x"], y=["y"])
    assert upper.SerializeToString() == before
    np.testing.assert_array_equal(problem.x["w"], [1.0, 2.0])
    assert problem.y == {}
    x, y = {**problem.x, "x": np.array([1.0, -1.0])}, {"y": np.array([0.5, 2.0])}
    same(problem.lower_gradient(x, y, {}), {"y": torch.tensor([2 * 0.5 * 1 - 2, 2 * 2 * 2.0 + 2])})
    product = problem.cross_vector(x, y, {"y": np.array([1.0, 10.0])}, {})
    same(product, {"w": torch.tensor([2 * 0.5, 10 * 2 * 2.0]), "x": torch.tensor([-2.0, -20.0])})
    found = problem.upper(x, y, {})
    assert found.loss == 0.25 * 1 + 4 * 2 - 2 * (0.5 - 2.0)
    same(found.to_x, {"w": torch.tensor([0.25, 4.0]), "x": torch.tensor([-1.0, -4.0])})


def test_float32_models_take_float64_variables():
    text = LOWER.replace("double", "float")
    problem = bilevel.from_onnx(
        lower=parser.parse_model(text),
        upper=parser.parse_model(UPPER.replace("double", "float")),
        x="penalty",
        y=["w", "b"],
    )
    train, valid = ({k: v.astype(np.float32) for k, v in batch.items()} for batch in (TRAIN, VALID))
    result = bilevel.lancbio(problem, X0, Y0, upper_lr=1.0, iterations=5, lower_data=train, upper_data=valid)
    assert result.x["penalty"].dtype == np.float64
    with pytest.raises(BatchError, match="must be float32, but is float64"):
        bilevel.lancbio(problem, X0, Y0, upper_lr=1.0, lower_data=TRAIN, upper_data=valid)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (["penalti"], ["w", "b"], r"\['penalti'\] is no input or initializer of the lower model.*'penalty'.*upper"),
        (["penalty"], ["penalty"], "named once"),
        ([], ["w"], "need names"),
        (["penalty"], [], "need names"),
        (["w"], ["penalty"], "none is an input or initializer of the upper model"),
    ],
)
def test_names_that_cannot_be_variables(x, y, message):
    with pytest.raises(SignatureError, match=message):
        bilevel.from_onnx(lower=parser.parse_model(LOWER), upper=parser.parse_model(UPPER), x=x, y=y)


def changed(text, old, new):
    assert old in text
    return parser.parse_model(text.replace(old, new))


def test_models_that_do_not_fit():
    lower, upper = parser.parse_model(LOWER), parser.parse_model(UPPER)
    names: dict[str, Any] = {"x": "penalty", "y": ["w", "b"]}
    with pytest.raises(SignatureError, match=r"y=.*\['w'\] is no input or initializer of the lower model"):
        bilevel.from_onnx(lower=changed(LOWER, "w", "u"), upper=upper, **names)
    with pytest.raises(SignatureError, match=r"upper model must have one output, its loss, but it has \['loss', 'z'\]"):
        bilevel.from_onnx(lower=lower, upper=changed(UPPER, "(double loss)", "(double loss, double[k] z)"), **names)
    with pytest.raises(SignatureError, match="of='each'"):
        bilevel.from_onnx(lower=lower, upper=changed(UPPER, "(double loss)", "(double[k] each)"), **names)
    with pytest.raises(SignatureError, match=r"'w' is \('float64', \('d',\)\) in the lower model, but .*\('d', 1\)"):
        bilevel.from_onnx(lower=lower, upper=changed(UPPER, "double[d] w", "double[d, 1] w"), **names)
    with pytest.raises(SignatureError, match="not floating-point"):
        bilevel.from_onnx(lower=changed(LOWER, "double b,", "int64 b,"), upper=upper, **names)
    with pytest.raises(SignatureError, match="'signs' is of type BFLOAT16"):
        bilevel.from_onnx(lower=changed(LOWER, "double[n] signs", "bfloat16[n] signs"), upper=upper, **names)


def test_data_that_does_not_fit(problem):
    def solve(**settings):
        given = {"lower_data": TRAIN, "upper_data": VALID, **settings}
        return bilevel.lancbio(problem, X0, Y0, upper_lr=0.1, iterations=1, **given)

    with pytest.raises(BatchError, match="lacks the input `features`"):
        solve(lower_data=None)
    with pytest.raises(BatchError, match="no input `labels`"):
        solve(upper_data={**VALID, "labels": VALID["signs"]})
    with pytest.raises(BatchError, match=r"lower gradient holds \['w'\], which the solver chooses"):
        solve(lower_data={**TRAIN, "w": np.zeros(4)})
    with pytest.raises(BatchError, match="disagree about `n`"):
        solve(lower_data={**TRAIN, "signs": TRAIN["signs"][:-1]})
    with pytest.raises(BatchError, match="disagree about `d`"):
        bilevel.lancbio(problem, {"penalty": np.zeros(3)}, Y0, upper_lr=0.1, lower_data=TRAIN, upper_data=VALID)


def test_what_onnx_runtime_refuses_is_named():
    text = """<ir_version: 9, opset_import: ["" : 20]>
    g (double[3] table, double[2] x, int64[k] ids) => (double loss) {
        rows = Gather(table, ids)  squared = Mul(rows, rows)  s = ReduceSum <keepdims = 0> (squared)
        t = ReduceSum <keepdims = 0> (x)  loss = Mul(s, t)
    }"""
    problem = bilevel.from_onnx(lower=parser.parse_model(text), upper=parser.parse_model(text), x="x", y="table")
    ids = {"ids": np.array([0, 7])}
    with pytest.raises(ExecutionError, match="ONNX Runtime failed in the lower gradient"):
        problem.lower_gradient({"x": np.ones(2)}, {"table": np.ones(3)}, ids)
