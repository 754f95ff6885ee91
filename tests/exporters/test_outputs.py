"""Outputs that differ between training and evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.errors import SignatureError


class Heads(NamedTuple):
    logits: torch.Tensor
    aux: torch.Tensor


@dataclass
class Found:
    logits: torch.Tensor
    aux: torch.Tensor | None = None


class Net(nn.Module):
    def __init__(self, give):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.main, self.aux, self.wide = nn.Linear(8, 3), nn.Linear(8, 3), nn.Linear(8, 5)
        self.give = give

    def forward(self, x):
        f = torch.relu(self.norm(self.body(x)))
        return self.give(self.training, self.main(f), self.aux(f), self.wide(f))


def export(give, **settings):
    return edgeopt.export(
        Net(give),
        torch.randn(5, 6),
        loss=edgeopt.losses.MSE(),
        optimizer=edgeopt.optimizers.SGD(lr=0.05),
        verbose=False,
        **settings,
    )


def tuple_or_tensor(training, main, aux, wide):
    return (aux, main) if training else main


def namedtuple_or_tensor(training, main, aux, wide):
    return Heads(main, aux) if training else main


def other_names(training, main, aux, wide):
    return {"main": main, "aux": aux} if training else {"logits": main}


def other_order(training, main, aux, wide):
    return (main, aux) if training else (aux, main)


def other_order_of_names(training, main, aux, wide):
    return {"aux": aux, "main": main} if training else {"main": main, "aux": aux}


def other_shapes(training, main, aux, wide):
    return (main, wide) if training else (wide, main)


def one_of_another_shape(training, main, aux, wide):
    return main if training else wide


def scores(training, main, aux, wide):
    return main if training else main.argmax(1)


REFUSED = [
    tuple_or_tensor, namedtuple_or_tensor, other_names, other_order, other_order_of_names, other_shapes,
    one_of_another_shape, scores,
]  # fmt: skip


@pytest.mark.parametrize("give", REFUSED, ids=lambda give: give.__name__)
def test_a_guess_is_refused_with_both_sides(give):
    with pytest.raises(SignatureError, match=r"in training and .* in evaluation.*output="):
        export(give)


def test_an_output_that_evaluation_does_not_return_is_refused():
    with pytest.raises(SignatureError, match="what the module returns in evaluation is 'output_1' of training"):
        export(tuple_or_tensor, output="output")


@pytest.mark.parametrize(
    ("give", "output"),
    [(tuple_or_tensor, "output_1"), (namedtuple_or_tensor, "logits"), (other_names, "main"),
     (other_order_of_names, "main")],
)  # fmt: skip
def test_the_named_output_is_trained_and_evaluated(give, output):
    bundle = export(give, output=output)
    session, reference = bundle.session(), Net(give).train()
    random = np.random.default_rng(0)
    x, target = random.standard_normal((5, 6)).astype("f"), random.standard_normal((5, 3)).astype("f")
    sgd = torch.optim.SGD(reference.parameters(), lr=0.05)
    for _ in range(3):
        found = reference(torch.from_numpy(x))
        main = found[1] if isinstance(found, tuple) and give is tuple_or_tensor else found
        main = main.logits if isinstance(main, Heads) else main["main"] if isinstance(main, dict) else main
        loss = nn.functional.mse_loss(main, torch.from_numpy(target))
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        assert session.step((x, target))["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert output in [spec.name for spec in bundle.manifest.outputs]
    f = torch.relu(reference.eval().norm(reference.body(torch.from_numpy(x))))
    expected = nn.functional.mse_loss(reference.main(f), torch.from_numpy(target)).item()
    assert session.evaluate([(x, target)])["loss"] == pytest.approx(expected, rel=1e-5)


def common_names(training, main, aux, wide):
    return Found(main, aux) if training else Found(main)


def more_in_evaluation(training, main, aux, wide):
    return {"logits": main} if training else {"logits": main, "scores": wide}


def the_same(training, main, aux, wide):
    return main, aux


@pytest.mark.parametrize(
    ("give", "predicted"),
    [(common_names, ["logits"]), (more_in_evaluation, ["logits", "scores"]), (the_same, ["output", "output_1"])],
)
def test_common_names_decide(give, predicted):
    bundle = export(give)
    assert [spec.name for spec in bundle.manifest.outputs] == predicted
    bundle.session().step((np.zeros((5, 6), "f"), np.zeros((5, 3), "f")))


def test_an_unknown_output_is_refused_with_those_there_are():
    with pytest.raises(SignatureError, match=r"no output 'main'.*output"):
        export(the_same, output="main")
