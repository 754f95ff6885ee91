"""Rules as torch optimizers: the same training as torch's own, with everything that torch users do to optimizers."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np
import pytest
import torch
from torch import nn

from edgeopt.compat.torch import RuleOptimizer
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import (
    OPTIMIZERS,
    SGD,
    Adam,
    AdamW,
    Collective,
    Descent,
    DoG,
    GaussNewtonBartlett,
    GaussNewtonSketch,
    GroupArrays,
    HutchinsonDiagonal,
    Ingredient,
    KroneckerFactor,
    Lookahead,
    MoMo,
    MoMoAdam,
    Muon,
    Normal,
    Optimizer,
    PolyakSGD,
    Rprop,
    from_config,
)
from edgeopt.schedules import WarmupCosine


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


def network() -> Network:
    return Network()


def batches(count: int, start: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for seed in range(start, start + count):
        rng = np.random.default_rng(seed)
        yield torch.tensor(rng.standard_normal((8, 4))), torch.tensor(rng.integers(0, 3, 8))


def loss_of(model: nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(data[0]), data[1])


def train(model: nn.Module, optimizer: Any, steps: int, scheduler: Any = None, start: int = 0) -> nn.Module:
    for data in batches(steps, start):
        optimizer.zero_grad()
        loss_of(model, data).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return model


def distance(one: nn.Module, other: nn.Module) -> float:
    return max((a - b).abs().max().item() for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Rprop"])
def test_a_wrapped_rule_trains_as_torchs_own(name: str) -> None:
    ours, theirs = network(), network()
    reference = getattr(torch.optim, name)(theirs.parameters(), lr=0.02)
    train(theirs, reference, 15)
    rule = from_config(reference)
    assert isinstance(rule, Optimizer)
    train(ours, RuleOptimizer(ours.parameters(), rule), 15)
    assert distance(ours, theirs) <= 1e-12


def test_groups_have_settings_and_rules_of_their_own() -> None:
    ours, theirs = network(), network()

    def groups(model: nn.Module) -> list[dict[str, Any]]:
        named = list(model.named_parameters())
        return [
            {"params": [p for n, p in named if "weight" in n], "lr": 0.1, "weight_decay": 0.2, "betas": (0.8, 0.99)},
            {"params": [p for n, p in named if "bias" in n], "amsgrad": True},
        ]

    mine = groups(ours)
    mine[0]["beta1"], mine[0]["beta2"] = mine[0].pop("betas")
    train(theirs, torch.optim.AdamW(groups(theirs), lr=0.01), 10)
    train(ours, RuleOptimizer(mine, AdamW(0.01)), 10)
    assert distance(ours, theirs) <= 1e-12

    muon, decayed = {"params": ours.first.parameters(), "rule": Muon(0.02)}, {"params": ours.second.parameters()}
    optimizer = RuleOptimizer([muon, {**decayed, "weight_decay": 0.5}], SGD(0.1))
    assert optimizer.param_groups[0]["momentum"] == 0.95
    assert optimizer.param_groups[1]["weight_decay"] == 0.5
    train(ours, optimizer, 2)


def test_numbers_in_a_group_may_change_at_any_time() -> None:
    ours, theirs = network(), network()
    reference = torch.optim.AdamW(theirs.parameters(), lr=0.01)
    optimizer = RuleOptimizer(ours.parameters(), AdamW(0.01))
    for each, model in [(reference, theirs), (optimizer, ours)]:
        train(model, each, 3)
        each.param_groups[0]["weight_decay"] = 0.3
        each.param_groups[0]["lr"] = torch.tensor(0.05) if each is optimizer else 0.05
        train(model, each, 3)
    assert distance(ours, theirs) <= 1e-12


@pytest.mark.parametrize(
    "scheduler",
    [
        lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5),
        lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 12, cycle_momentum=False),
        lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    ],
)
def test_torchs_schedulers_change_the_rate(scheduler: Any) -> None:
    ours, theirs = network(), network()
    reference = torch.optim.Adam(theirs.parameters(), lr=0.01)
    optimizer = RuleOptimizer(ours.parameters(), Adam(0.01))
    train(theirs, reference, 10, scheduler(reference))
    train(ours, optimizer, 10, scheduler(optimizer))
    assert distance(ours, theirs) <= 1e-12


def test_a_schedule_of_the_rule_follows_the_groups_rate_in_proportion() -> None:
    schedule = WarmupCosine(0.1, 2, 10)
    ours, theirs = network(), network()
    train(ours, RuleOptimizer([{"params": ours.parameters(), "lr": 0.05}], SGD(schedule)), 9)
    train(theirs, RuleOptimizer(theirs.parameters(), SGD(WarmupCosine(0.05, 2, 10))), 9)
    assert distance(ours, theirs) <= 1e-15
    assert distance(ours, network()) > 1e-3


def test_a_closure_is_called_with_gradients_on() -> None:
    ours, theirs = network(), network()
    (data,) = batches(1)
    optimizer, reference = RuleOptimizer(ours.parameters(), SGD(0.1)), torch.optim.SGD(theirs.parameters(), lr=0.1)
    losses = []
    pairs: list[tuple[Any, nn.Module]] = [(optimizer, ours), (reference, theirs)]
    for each, model in pairs:

        def closure(each: Any = each, model: nn.Module = model) -> torch.Tensor:
            each.zero_grad()
            loss = loss_of(model, data)
            loss.backward()
            return loss

        losses.append(each.step(closure))
    assert losses[0] == losses[1]
    assert distance(ours, theirs) <= 1e-16


def test_parameters_without_a_gradient_stay_and_do_not_count() -> None:
    model = network()
    optimizer = RuleOptimizer(model.parameters(), Adam(0.1))
    before = model.first.weight.clone()
    for data in batches(3):
        optimizer.zero_grad()
        loss_of(model, data).backward()
        model.first.weight.grad = None
        optimizer.step()
    assert torch.equal(model.first.weight, before)
    assert model.first.weight not in optimizer.state
    assert optimizer.state[model.second.weight]["step"] == 3


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_rule_resumes_exactly_from_its_state_dict(name: str) -> None:
    rule = OPTIMIZERS[name]()
    try:
        straight, first = network(), network()
        optimizer = RuleOptimizer(straight.parameters(), rule, seed=3)
    except ConfigurationError:
        # It needs labels drawn from the model, its layers, or its derivatives along directions.
        kinds = [*rule.ingredients(np.zeros((2, 2))).values(), *rule.shared_ingredients({}).values()]
        assert any(isinstance(kind, (GaussNewtonBartlett, GaussNewtonSketch, KroneckerFactor)) for kind in kinds)
        return
    graph = any(isinstance(kind, HutchinsonDiagonal) for kind in rule.ingredients(np.zeros((2, 2))).values())
    # The gradients are there already.
    closure = (lambda: 2.0) if rule.shared_ingredients({}) else None

    def go(model: nn.Module, optimizer: Any, steps: int, start: int = 0) -> None:
        for data in batches(steps, start):
            optimizer.zero_grad()
            parameters = list(model.parameters())
            gradients = torch.autograd.grad(loss_of(model, data), parameters, create_graph=graph)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step(closure)

    go(straight, optimizer, 6)
    half = RuleOptimizer(first.parameters(), rule, seed=3)
    go(first, half, 3)
    file = io.BytesIO()
    torch.save({"model": first.state_dict(), "optimizer": half.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    second = network()
    second.load_state_dict(saved["model"])
    resumed = RuleOptimizer(second.parameters(), rule, seed=3)
    resumed.load_state_dict(saved["optimizer"])
    go(second, resumed, 3, start=3)
    assert distance(straight, second) == 0.0
    assert all(torch.isfinite(parameter).all() for parameter in second.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_parameters_keep_their_dtype_and_slots_theirs(dtype: torch.dtype) -> None:
    model = network().to(dtype)
    optimizer = RuleOptimizer(model.parameters(), OPTIMIZERS["nadam"]())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    state = optimizer.state[model.first.weight]
    assert state["exp_avg"].dtype == model.first.weight.dtype == dtype
    assert state["mu_product"].dtype == torch.float64
    resumed = RuleOptimizer(model.parameters(), OPTIMIZERS["nadam"]())
    resumed.load_state_dict(optimizer.state_dict())
    assert resumed.state[model.first.weight]["mu_product"].dtype == torch.float64


def test_a_scalar_parameter_is_updated() -> None:
    parameter = nn.Parameter(torch.tensor(2.0))
    optimizer = RuleOptimizer([parameter], AdamW(0.1))
    parameter.grad = torch.tensor(1.0)
    optimizer.step()
    assert parameter.item() == pytest.approx(2.0 * (1 - 0.1 * 0.01) - 0.1)


def test_a_copy_goes_on_by_itself() -> None:
    model = network()
    optimizer = RuleOptimizer(model.parameters(), Adam(0.1))
    train(model, optimizer, 2)
    both = copy.deepcopy({"model": model, "optimizer": optimizer})
    train(model, optimizer, 2, start=2)
    train(both["model"], both["optimizer"], 2, start=2)  # type: ignore[arg-type]  # a dictionary of both
    assert distance(model, both["model"]) == 0.0  # type: ignore[arg-type]  # a dictionary of both


@dataclass(frozen=True)
class Averaged(Descent):
    """Plain descent whose evaluation view is the mean of the last two parameters."""

    def init(self, param: Any) -> dict[str, Any]:
        return {"last": param.copy()}

    def delta(self, xp: Any, param: Any, grad: Any, state: Any, hyper: Any, step: Any) -> Any:
        return xp.astype(hyper["lr"], param.dtype) * grad, {"last": param}

    def view(self, xp: Any, param: Any, state: Any, hyper: Any, step: Any) -> Any:
        return (param + state["last"]) / 2


def test_evaluation_shows_what_the_rule_evaluates() -> None:
    parameter = nn.Parameter(torch.tensor([1.0]))
    optimizer = RuleOptimizer([parameter], Averaged(lr=0.5))
    parameter.grad = torch.tensor([1.0])
    optimizer.step()
    with optimizer.evaluation():
        assert parameter.item() == 0.75
    assert parameter.item() == 0.5


@dataclass(frozen=True)
class Joint(Collective):
    """Descent along gradients divided by their common norm, which it also averages."""

    @property
    def schedule(self) -> Any:
        return SGD(0.1).schedule

    def hyperparameters(self) -> dict[str, float]:
        return {}

    def init_shared(self, params: Any) -> dict[str, Any]:
        return {"norms": np.zeros(())}

    def update_all(self, xp: Any, group: GroupArrays, hyper: Any, step: Any) -> tuple[Any, Any, Any]:
        params, grads, _, shared = group
        norm = xp.sqrt(sum(xp.sum(grad * grad) for grad in grads.values()))
        moved = {name: param - hyper["lr"] * grads[name] / norm for name, param in params.items()}
        return moved, {name: {} for name in params}, {"norms": shared["norms"] + norm}


def test_a_collective_rule_sees_all_parameters_of_its_group() -> None:
    one, other = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
    unused = nn.Parameter(torch.ones(1))
    optimizer = RuleOptimizer([one, other, unused], Joint())
    one.grad, other.grad = torch.tensor([2.0, 0.0]), torch.tensor([1.5])
    for _ in range(2):
        optimizer.step()
    assert torch.allclose(one, torch.tensor([-0.16, 0.0]))
    assert torch.allclose(other, torch.tensor([-0.12]))
    assert unused.item() == 1.0
    assert optimizer.state[one]["shared"]["norms"] == 5.0
    resumed = RuleOptimizer([one, other, unused], Joint())
    resumed.load_state_dict(optimizer.state_dict())
    assert resumed.state[one]["shared"]["norms"] == 5.0


@dataclass(frozen=True)
class Curved(Descent):
    """Newton's step with the diagonal of the Hessian, estimated at every other update."""

    def init(self, param: Any) -> dict[str, Any]:
        return {"diagonal": np.zeros_like(param)}

    def ingredients(self, param: Any) -> dict[str, Ingredient]:
        return {"curvature": HutchinsonDiagonal(every=2)}

    def delta(self, xp: Any, param: Any, grad: Any, state: Any, hyper: Any, step: Any) -> Any:
        diagonal = state["diagonal"] + state["curvature"]
        return grad / diagonal, {"diagonal": diagonal}


def test_curvature_comes_from_gradients_that_can_be_differentiated() -> None:
    parameter = nn.Parameter(torch.tensor([3.0, -2.0]))
    scale = torch.tensor([4.0, 0.5])
    optimizer = RuleOptimizer([parameter], Curved())
    (parameter.grad,) = torch.autograd.grad((scale * parameter**2).sum() / 2, [parameter], create_graph=True)
    optimizer.step()
    # The Hessian is diagonal, so the estimate is exact and one step reaches the minimum.
    assert torch.allclose(parameter, torch.zeros(2))
    assert torch.equal(optimizer.state[parameter]["diagonal"], scale)
    parameter.grad = torch.ones(2)
    optimizer.step()
    with pytest.raises(ConfigurationError, match="create_graph=True"):
        optimizer.step()


@pytest.mark.parametrize("rule", [MoMo(0.1), MoMoAdam(0.1), PolyakSGD(0.1, eps=0.1)], ids=repr)
def test_the_closure_gives_the_value_of_the_loss(rule: Optimizer) -> None:
    model = network()
    optimizer = RuleOptimizer(model.parameters(), rule)
    named = {str(place): parameter for place, parameter in enumerate(model.parameters())}
    params = {name: parameter.detach().numpy().copy() for name, parameter in named.items()}
    states, shared = {name: rule.init(param) for name, param in params.items()}, rule.init_shared(params)
    hyper = {name: np.asarray(value) for name, value in {**rule.hyperparameters(), "lr": 0.1}.items()}
    for step, data in enumerate(batches(5), 1):

        def closure(data: Any = data) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, data)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        grads = {name: parameter.grad.numpy() for name, parameter in named.items() if parameter.grad is not None}
        group = GroupArrays(params, grads, states, {**shared, "loss": loss.detach().numpy()})
        params, states, shared = rule.update_all(numpy_namespace, group, hyper, np.asarray(step))
    for name, parameter in named.items():
        np.testing.assert_allclose(parameter.detach().numpy(), params[name], rtol=0, atol=1e-12)
    with pytest.raises(ConfigurationError, match=r"call step\(closure\)"):
        optimizer.step()


def test_a_wrapper_leaves_a_collective_rule_its_group() -> None:
    ours, theirs = network(), network()
    train(ours, RuleOptimizer(ours.parameters(), Lookahead(DoG(reps_rel=0.1), k=9)), 4)
    train(theirs, RuleOptimizer(theirs.parameters(), DoG(reps_rel=0.1)), 4)
    assert distance(ours, theirs) == 0.0


@dataclass(frozen=True)
class Noisy(Descent):
    """Langevin dynamics without a gradient."""

    def init(self, param: Any) -> dict[str, Any]:
        return {}

    def ingredients(self, param: Any) -> dict[str, Ingredient]:
        return {"noise": Normal()}

    def delta(self, xp: Any, param: Any, grad: Any, state: Any, hyper: Any, step: Any) -> Any:
        return state["noise"], {}


def test_noise_depends_on_seed_update_and_parameter() -> None:
    def moves(seed: int) -> torch.Tensor:
        parameters = [nn.Parameter(torch.zeros(500)) for _ in range(2)]
        optimizer = RuleOptimizer(parameters, Noisy(), seed=seed)
        path = [torch.zeros(2, 500)]
        for _ in range(2):
            for parameter in parameters:
                parameter.grad = torch.zeros(500)
            optimizer.step()
            path.append(torch.stack([parameter.detach().clone() for parameter in parameters]))
        return torch.diff(torch.stack(path), dim=0).flatten(0, 1)

    first = moves(1)
    assert torch.equal(first, moves(1))
    draws = torch.cat([first, moves(2)])
    assert draws.mean().abs() < 0.1
    assert (draws.var(dim=1) - 1).abs().max() < 0.3
    correlations = torch.corrcoef(draws) - torch.eye(len(draws))
    assert correlations.abs().max() < 0.2


@dataclass(frozen=True)
class Labelled(Noisy):
    """Asks for what takes the model."""

    def ingredients(self, param: Any) -> dict[str, Ingredient]:
        return {"curvature": GaussNewtonBartlett()}


def test_what_cannot_be_had_is_refused() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    with pytest.raises(ConfigurationError, match="in a bundle only"):
        RuleOptimizer([parameter], Labelled())
    with pytest.raises(ConfigurationError, match="must be an update rule, got 'adam'"):
        RuleOptimizer([parameter], "adam")  # type: ignore[arg-type] # on purpose
    with pytest.raises(ConfigurationError, match="has no setting 'momenta'; it has"):
        RuleOptimizer([{"params": [parameter], "momenta": (0.9, 0.99)}], Adam(0.1))
    with pytest.raises(ConfigurationError, match="Adam: there is no beta1"):
        RuleOptimizer([parameter], Adam(0.1)).load_state_dict(RuleOptimizer([parameter], SGD(0.1)).state_dict())
    optimizer = RuleOptimizer([parameter], SGD(0.1))
    parameter.grad = torch.zeros(3).to_sparse()
    with pytest.raises(ConfigurationError, match="sparse=False"):
        optimizer.step()


def test_wrappers_of_rules_work_too() -> None:
    ours, theirs = network(), network()
    lookahead = RuleOptimizer(ours.parameters(), Lookahead(SGD(0.1), k=3, alpha=0.5))
    assert lookahead.param_groups[0]["lookahead.alpha"] == 0.5
    train(ours, lookahead, 3)
    train(theirs, torch.optim.SGD(theirs.parameters(), lr=0.1), 3)
    start = network()
    for mine, fast, slow in zip(ours.parameters(), theirs.parameters(), start.parameters(), strict=True):
        assert torch.allclose(mine, (fast + slow) / 2, rtol=0, atol=1e-15)


def test_the_rate_may_be_unused() -> None:
    model = network()
    train(model, RuleOptimizer(model.parameters(), Rprop(0.0)), 2)
