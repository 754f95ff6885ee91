"""Update rules as optimizers of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import array_api_compat.torch as xp
import torch

from edgeopt.arguments import expanded, settings_of
from edgeopt.checks import require
from edgeopt.compat.settings import check_real, current, rate, switches, with_settings
from edgeopt.compat.torch.given import Given, check_ingredients, numpy_values
from edgeopt.compat.torch.slots import OWN, SHARED, check_state, tensor
from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import Collective, GroupArrays, Optimizer, Wrapper

__all__ = ["RuleOptimizer"]

Slots = dict[str, torch.Tensor]


class RuleOptimizer(torch.optim.Optimizer):
    """Any update rule as a `torch.optim.Optimizer`.

    Parameter groups may set `lr`, any field of the rule (`weight_decay`, `beta1`), or have another rule under `rule`.
    `group["lr"]` is the rate that the rule's schedule is built around, so torch's schedulers and changes by hand work
    on top of it; with a plain number as rate it is the rate. Settings in a group may be changed at any time; those that
    are 0 switch a term off until they are changed, as in torch.

    State per parameter: the rule's slots, and `step`, which counts updates in which there was a gradient.

    Random numbers that a rule asks for are drawn anew at each update from `seed`, and are the same after a resume. A
    rule that asks for a Hutchinson estimate of the curvature needs gradients that can be differentiated, from
    `loss.backward(create_graph=True)`, at the updates where it is due. One that asks for the value of the loss needs a
    closure that returns it: `step(closure)`.

    Args:
        params: As for any torch optimizer: parameters, named parameters, or groups.
        rule: The rule of all groups that have none of their own.
        seed: Of the random numbers.

    Raises:
        ConfigurationError: A group sets what the rule does not have, a parameter is no array of real numbers, or a
            rule needs what only a bundle can give.
    """

    def __init__(self, params: Any, rule: Optimizer, *, seed: int = 0) -> None:
        self._rule = rule
        self._rules: list[Optimizer] = []
        self._seed = seed
        super().__init__(params, {"updates": 0})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with settings of their own; see the class."""
        given = {name: value for name, value in param_group.items() if name not in OWN}
        rule = param_group.get("rule", self._rule)
        require(isinstance(rule, Optimizer), f"rule must be an update rule, got {rule!r}")
        rule = with_settings(rule, given)
        numbers = {"lr": param_group.get("lr", rule.schedule.base), **switches(rule), **rule.hyperparameters()}
        own = {name: value for name, value in param_group.items() if name in OWN and name != "rule"}
        super().add_param_group({**own, **numbers})
        check_real(param.dtype for param in self.param_groups[-1]["params"])
        check_ingredients(rule, self.param_groups[-1]["params"])
        self._rules.append(rule)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient, and return the closure's loss if there is a closure.

        Raises:
            ConfigurationError: A rule needs the value of the loss, and there is no closure that returns it; or it needs
                curvature, and gradients cannot be differentiated; or a group has been given a value that the rule
                refuses.
        """
        self._rules = [self._changed(group, rule) for group, rule in zip(self.param_groups, self._rules, strict=True)]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        given = Given(self.param_groups, self._rules, self._seed, loss)
        for place, (group, rule) in enumerate(zip(self.param_groups, self._rules, strict=True)):
            if any(param.grad is not None for param in group["params"]):
                update = self._update_together if _is_collective(rule) else self._update_each
                update(place, group, rule, given)
                group["updates"] += 1
        return loss

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """A context in which parameters are what the rule evaluates: averages, for rules that have them."""
        kept = {}
        with torch.no_grad():
            for group, rule in zip(self.param_groups, self._rules, strict=True):
                hyper = self._hyper(group, rule)
                for param in group["params"]:
                    state = self._state(param, rule)
                    view = rule.view(xp, param, self._slots(state, group), hyper, state["step"].clone())
                    if view is not param:
                        kept[param] = param.clone()
                        param.copy_(view)
        try:
            yield
        finally:
            with torch.no_grad():
                for param, value in kept.items():
                    param.copy_(value)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load what `state_dict` gave, bit by bit and in its dtypes.

        Nothing is loaded if something does not fit.

        Raises:
            ConfigurationError: It is that of an optimizer with other rules, settings that bring other slots, or other
                parameters; the message names what is missing, what nobody would read, and what has another shape.
        """
        check_state(state_dict, self.param_groups, self._rules)
        super().load_state_dict(dict(state_dict))
        # torch gives state the dtype of the parameter; slots have their own.
        saved = [place for group in state_dict["param_groups"] for place in group["params"]]
        params = [param for group in self.param_groups for param in group["params"]]
        for place, param in zip(saved, params, strict=True):
            if place in state_dict["state"]:
                self.state[param] = _copied(state_dict["state"][place], param.device)
            else:
                self.state.pop(param, None)

    def __getstate__(self) -> dict[str, Any]:
        # What torch keeps of an optimizer that is copied or pickled leaves out everything of ours.
        own = {"_rule": self._rule, "_rules": self._rules, "_seed": self._seed}
        return {**super().__getstate__(), **own}

    def _changed(self, group: dict[str, Any], rule: Optimizer) -> Optimizer:
        """The rule with the settings that its group has now."""
        cls = type(_innermost(rule))
        several = [name for name, field in settings_of(cls).items() if field is None and name in group]
        group.update(expanded(cls, {name: group.pop(name) for name in several}))
        changed = current(rule, {name: value for name, value in group.items() if name not in OWN})
        if changed is not rule:
            for param in group["params"]:
                self._complete(param, changed)
        return changed

    def _complete(self, param: torch.Tensor, rule: Optimizer) -> None:
        """Add the slots that a change of settings has brought to a state that has begun."""
        state = self.state.get(param, {})
        late = rule.init(numpy_values(param)).keys() - state.keys() if "step" in state else set()
        if "momentum_buffer" in late and bool(getattr(_innermost(rule), "dampening", False)):
            raise ConfigurationError(
                "A momentum that begins in the middle starts from the plain gradient in torch, which cannot be told "
                "apart here where there is dampening: begin with a momentum above 0."
            )
        state.update({slot: tensor(rule.init(numpy_values(param))[slot], param) for slot in sorted(late)})

    def _hyper(self, group: Mapping[str, Any], rule: Optimizer) -> dict[str, torch.Tensor]:
        lr = rate(xp, rule, group["lr"], group["updates"], _scalar)
        return {**{name: _scalar(group.get(name, value)) for name, value in rule.hyperparameters().items()}, "lr": lr}

    def _update_each(self, place: int, group: dict[str, Any], rule: Optimizer, given: Given) -> None:
        hyper = self._hyper(group, rule)
        for number, param in enumerate(group["params"]):
            if param.grad is None:
                continue
            state = self._state(param, rule)
            state["step"] += 1
            own = {**self._slots(state, group), **given.own(place, number)}
            moved, slots = rule.update(xp, param, _dense(param), own, hyper, state["step"].clone())
            state.update({slot: _kept(value) for slot, value in slots.items()})
            param.copy_(moved)

    def _update_together(self, place: int, group: dict[str, Any], rule: Optimizer, given: Given) -> None:
        """All parameters of the group; a missing gradient is zero."""
        params = dict(zip(map(str, range(len(group["params"]))), group["params"], strict=True))
        states = {name: self._state(param, rule) for name, param in params.items()}
        grads = {name: torch.zeros_like(p) if p.grad is None else _dense(p) for name, p in params.items()}
        first = states["0"]
        if SHARED not in first:
            arrays = rule.init_shared({name: numpy_values(param) for name, param in params.items()})
            first[SHARED] = {slot: tensor(array, params["0"]) for slot, array in arrays.items()}
        own = {}
        for number, name in enumerate(params):
            states[name]["step"] += 1
            own[name] = {**self._slots(states[name], group), **given.own(place, number)}
        step = torch.tensor(group["updates"] + 1)
        hyper = self._hyper(group, rule)
        together = GroupArrays(params, grads, own, {**first[SHARED], **given.shared(place)})
        moved, slots, shared = rule.update_all(xp, together, hyper, step)
        first[SHARED] = {**first[SHARED], **{slot: _kept(value) for slot, value in shared.items()}}
        for name, param in params.items():
            states[name].update({slot: _kept(value) for slot, value in slots[name].items()})
            param.copy_(moved[name])

    def _state(self, param: torch.Tensor, rule: Optimizer) -> dict[str, Any]:
        state: dict[str, Any] = self.state[param]
        if "step" not in state:
            state["step"] = torch.tensor(0)
            state.update({slot: tensor(array, param) for slot, array in rule.init(numpy_values(param)).items()})
        return state

    def _slots(self, state: Mapping[str, Any], group: Mapping[str, Any]) -> Slots:
        return {slot: value for slot, value in state.items() if slot not in ("step", SHARED)}


def _innermost(rule: Optimizer) -> Optimizer:
    """The rule itself, or the one that others go around."""
    return _innermost(rule.inner) if isinstance(rule, Wrapper) else rule


def _is_collective(rule: Optimizer) -> bool:
    """Whether a rule, or the one that is wrapped in it, updates all parameters of a group together."""
    return isinstance(rule, Collective) or (isinstance(rule, Wrapper) and _is_collective(rule.inner))


def _scalar(value: Any) -> torch.Tensor:
    """A 0-d float64 tensor on the CPU, where it may meet tensors of any device."""
    return torch.as_tensor(value, dtype=torch.float64, device="cpu")


def _kept(value: torch.Tensor) -> torch.Tensor:
    """A new value of a slot, apart from gradients, which are overwritten."""
    return value.detach().clone()


def _dense(param: torch.Tensor) -> torch.Tensor:
    grad = param.grad
    if grad is None or grad.is_sparse:
        raise ConfigurationError("Gradients must be dense: make the embedding with sparse=False.")
    return grad.detach()


def _copied(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if value.ndim == 0 else value.detach().clone().to(device)
    return {name: _copied(part, device) for name, part in value.items()} if isinstance(value, Mapping) else value
