"""Every way to call a module: inputs that stay apart, nested ones, wrappers, and names for what comes out."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import SignatureError
from edgeopt.losses import MSE
from edgeopt.optimizers import SGD
from edgeopt_exporters.pytorch.calling import bind_call, unwrapped
from edgeopt_exporters.pytorch.inputs import Examples, bind_examples
from edgeopt_exporters.pytorch.trial import try_out

X = torch.randn(4, 6)


def output_names(module: nn.Module, examples: Examples) -> tuple[str, ...]:
    return try_out(module, lambda: examples.call(module, examples.tensors)).evaluate.names


class Pair(nn.Module):
    """The difference of two branches with common weights."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return self.linear(left) - torch.tanh(self.linear(right))


class Starred(Pair):
    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs[0], inputs[1])


class Keywords(Pair):
    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # the point of it
        return super().forward(inputs["left"], inputs["right"])


class PositionalOnly(Pair):
    def forward(self, left: torch.Tensor, /, right: torch.Tensor) -> torch.Tensor:
        return super().forward(left, right)


class Nested(Pair):
    def forward(  # type: ignore[override]  # the point of it
        self, batch: dict[str, Any], mask: Any = None, *, scale: float = 1.0
    ) -> torch.Tensor:
        assert mask is None
        return scale * super().forward(batch["views"][0], batch["views"][1][0])


class Views(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


class Named(Pair):
    def forward(self, views: Views) -> torch.Tensor:  # type: ignore[override]  # the point of it
        return super().forward(views.left, views.right)


class Wrapper(nn.Module):
    """What PEFT returns: two of them around the model."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.base(*args, **kwargs)


class Doubling(Wrapper):
    def forward(self, *args: Any) -> Any:
        return self.base(*(2 * one for one in args))


class WithOwnTensor(Pair):
    """Called with its own parameter as an example."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.randn(4, 6))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return super().forward(left + self.shift, right)


def with_own_tensor() -> tuple[nn.Module, Any]:
    module = WithOwnTensor()
    return module, (module.shift, module.shift)


Case = tuple[nn.Module, Any]
CASES: dict[str, tuple[Callable[[], Case], list[str], Callable[..., torch.Tensor]]] = {
    "positional": (lambda: (Pair(), (X, X)), ["left", "right"], lambda m, a, b: m(a, b)),
    "views of one memory": (lambda: (Pair(), (X[:2], X[:2])), ["left", "right"], lambda m, a, b: m(a, b)),
    "own parameter": (with_own_tensor, ["left", "right"], lambda m, a, b: m(a, b)),
    "starred": (lambda: (Starred(), (X, X)), ["input", "input_1"], lambda m, a, b: m(a, b)),
    "keywords": (
        lambda: (Keywords(), {"left": X, "right": X}),
        ["left", "right"],
        lambda m, a, b: m(left=a, right=b),
    ),
    "positional only": (
        lambda: (PositionalOnly(), {"left": X, "right": X}),
        ["left", "right"],
        lambda m, a, b: m(a, b),
    ),
    "nested": (
        lambda: (Nested(), {"batch": {"views": [X, (X,)]}, "mask": None, "scale": 2.0}),
        ["batch.views_0", "batch.views_1_0"],
        lambda m, a, b: m({"views": [a, (b,)]}, scale=2.0),
    ),
    "wrapped": (lambda: (Wrapper(Wrapper(Pair())), (X, X)), ["left", "right"], lambda m, a, b: m(a, b)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_inputs_given_as_one_tensor_stay_apart(
    case: tuple[Callable[[], Case], list[str], Callable[..., torch.Tensor]],
) -> None:
    """Trained on different data for the two, as in PyTorch."""
    make, names, call = case
    torch.manual_seed(0)
    module, example = make()
    reference = copy.deepcopy(module)
    bundle = edgeopt.export(module, example, loss=MSE(), optimizer=SGD(lr=0.1), verbose=False)
    assert [spec.name for spec in bundle.manifest.inputs] == [*names, "target"]
    session = bundle.session()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    rows = X.shape[0] if isinstance(bundle.manifest.inputs[0].shape[0], str) else bundle.manifest.inputs[0].shape[0]
    for _ in range(3):
        a, b, y = torch.randn(rows, 6), torch.randn(rows, 6), torch.randn(rows, 3)
        loss = nn.functional.mse_loss(call(reference, a, b), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert session.step((a.numpy(), b.numpy(), y.numpy()))["loss"] == pytest.approx(loss.item(), rel=1e-5)
    for name, parameter in reference.named_parameters():
        np.testing.assert_allclose(session.parameters()[name], parameter.detach().numpy(), atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("module", "example", "names"),
    [
        (Named(), (Views(X, X),), ("views.left", "views.right")),
        (Doubling(Pair()), (X, X), ("input", "input_1")),
        (Wrapper(Pair()), {"right": X, "left": X}, ("right", "left")),
        (Wrapper(Starred()), (X, X), ("input", "input_1")),
        (torch.fx.symbolic_trace(Pair()), (X, X), ("left", "right")),
        (Pair(), [X.numpy(), X.numpy()], ("left", "right")),
    ],
    ids=["NamedTuple", "wrapper that computes", "wrapper by name", "two variadic", "GraphModule", "arrays"],
)
def test_names_of_inputs(module: nn.Module, example: Any, names: tuple[str, ...]) -> None:
    call, tensors = bind_call(module, example)
    assert call.names == names
    right = names.index(next(name for name in names if name.endswith(("right", "_1"))))
    expected = Pair.forward(next(part for part in module.modules() if hasattr(part, "linear")), X, X + 1)  # type: ignore[arg-type]  # a GraphModule has its parts
    if isinstance(module, Doubling):
        expected = module.base(2 * X, 2 * (X + 1))
    torch.testing.assert_close(call(module, [t + 1 if n == right else t for n, t in enumerate(tensors)]), expected)


def test_constants_of_the_call_are_said() -> None:
    examples = bind_examples(Nested(), ({"views": [X, (X,)]}, None), True, None)
    assert examples.decisions == (), "None says nothing"
    examples = bind_examples(Nested(), {"batch": {"views": [X, (X,)]}, "scale": 2.0}, True, None)
    assert [(decision.kind, decision.subject) for decision in examples.decisions] == [("fixed", "scale")]
    assert "fixed at 2.0" in examples.decisions[0].text


def test_a_forward_with_settled_arguments() -> None:
    module = Pair()
    module.forward = functools.partial(module.forward, right=X)  # type: ignore[method-assign]  # as people do
    call, tensors = bind_call(module, X)
    assert call.names == ("left",)
    torch.testing.assert_close(call(module, tensors), Pair.forward(module, X, X))


# torch.compile of PyTorch 2.11 uses what that release deprecates.
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
def test_wrappers_that_only_distribute_or_compile_are_taken_off() -> None:
    module = Pair()
    wrapped = torch.compile(nn.DataParallel(module))
    assert unwrapped(wrapped) is module  # type: ignore[arg-type]  # torch.compile returns a module for a module
    bundle = edgeopt.export(wrapped, (X, X), loss=MSE(), optimizer=SGD(lr=0.1), verbose=False)
    assert [s.name for s in bundle.manifest.tensors if s.role == "parameter"] == ["linear.weight", "linear.bias"]
    assert [spec.name for spec in bundle.manifest.inputs] == ["left", "right", "target"]


def test_a_module_that_is_compiled_in_place_is_called_as_it_is() -> None:
    module = nn.Linear(6, 3)

    def compiled(*args: Any, **kwargs: Any) -> Any:
        pytest.fail("compiled for its export")

    module.compile(backend=compiled)
    assert output_names(module, bind_examples(module, X, True, None)) == ("output",)


class Returning(nn.Module):
    def __init__(self, value: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: torch.Tensor) -> Any:
        return self.value(x)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (lambda h: {0: h, 1: 2 * h}, ("output_0", "output_1")),
        (lambda h: {"a": [h, (2 * h, None)], "b": None, "c": {"d": h}}, ("a_0", "a_1_0", "c.d")),
        (lambda h: (h, (h, h), None), ("output", "output_1_0", "output_1_1")),
        (lambda h: (None, h), ("output_1",)),
        (lambda h: [{"boxes": h}, {"boxes": h}], ("output_0.boxes", "output_1.boxes")),
        (lambda h: {"a": [h], "a_0": h}, ("a_0", "a_0_")),
        (lambda h: Views(h, h), ("left", "right")),
    ],
)
def test_each_output_gets_a_name(value: Callable[[torch.Tensor], Any], names: tuple[str, ...]) -> None:
    module = Returning(value)
    assert output_names(module, bind_examples(module, X, True, None)) == names


def test_nested_outputs_come_out_under_their_names() -> None:
    module = nn.Sequential(nn.Linear(6, 3), Returning(lambda h: {0: h, 1: [2 * h, None]}))
    bundle = edgeopt.export(module, X, loss=MSE(), optimizer=SGD(lr=0.1), verbose=False)
    outputs = bundle.session().predict({"input": X.numpy()})
    expected = module[0](X).detach().numpy()
    np.testing.assert_allclose(outputs["output_0"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs["output_1_0"], 2 * expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("module", "example", "message"),
    [
        (Named(), [X, X], r"give it in a tuple"),
        (Pair(), {"left": X, "wrong": X}, r"do not fit Pair\.forward"),
        (Pair(), {0: X, 1: X}, r"do not fit Pair\.forward"),
        (Pair(), (X, object()), r"'right' is a object"),
        (Pair(), (None, 3), r"hold no tensor \('left' is a NoneType and 'right' is a int\)"),
        (Pair(), (X, np.array(["a"])), r"'right' is an array of <U1"),
        (Nested(), ({"views": {0: X}, "views.0": X},), r"Several inputs would be called \['batch.views.0'\]"),
        (Returning(lambda h: None), X, "returns a NoneType"),
        (Returning(lambda h: [None]), X, "returns no tensor"),
    ],
)
def test_calls_that_are_refused(module: nn.Module, example: Any, message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        output_names(module, bind_examples(module, example, True, None))
