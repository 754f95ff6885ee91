"""Every component refuses names that it does not have, and says which one was probably meant."""

import copy
import inspect
import pickle
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from edgeopt.arguments import Component, settings_of
from edgeopt.compat.torch import RuleOptimizer
from edgeopt.errors import ConfigurationError
from edgeopt.losses import LOSSES, BCEWithLogits, CrossEntropy
from edgeopt.metrics import METRICS, Accuracy
from edgeopt.optimizers import (
    CAME,
    OPTIMIZERS,
    SGD,
    Adafactor,
    Adam,
    AdamW,
    Adan,
    AggMo,
    Group,
    Lion,
    Lookahead,
    Muon,
    ParameterGroups,
    QHAdam,
    RMSprop,
    Rprop,
    ScheduleFreeAdamW,
)
from edgeopt.schedules import (
    SCHEDULES,
    WSD,
    Constant,
    ConstantWithWarmup,
    CosineCycles,
    CosineRestarts,
    Cyclic,
    Exponential,
    InverseTime,
    Linear,
    MultiStep,
    Noam,
    OneCycle,
    PiecewiseConstant,
    PiecewiseLinear,
    Polynomial,
    Sequential,
    Step,
    WarmupCosine,
)
from edgeopt.transforms import TRANSFORMS, ClipByGlobalNorm, ClipByValue

COMPONENTS = [*OPTIMIZERS.values(), *SCHEDULES.values(), *TRANSFORMS.values(), *LOSSES.values(), *METRICS.values()]

# As users of other frameworks and of earlier versions write it: class, settings, the name here.
FOREIGN = [
    (AdamW, {"learning_rate": 1e-3}, "lr"),
    (AdamW, {"epsilon": 1e-8}, "eps"),
    (AdamW, {"b1": 0.9}, "beta1"),
    (AdamW, {"beta_2": 0.999}, "beta2"),
    (AdamW, {"wd": 0.1}, "weight_decay"),
    (Adam, {"decoupled_weight_decay": True}, "decay"),
    (SGD, {"beta1": 0.9}, "momentum"),
    (SGD, {"wieght_decay": 0.1}, "weight_decay"),
    (RMSprop, {"rho": 0.9}, "alpha"),
    (Muon, {"scale": "original"}, "adjust_lr_fn"),
    (ScheduleFreeAdamW, {"warmup": 10}, "warmup_steps"),
    (Lookahead, {"optimizer": SGD()}, "inner"),
    (Lookahead, {"inner": SGD(), "every": 5}, "k"),
    (Lookahead, {"inner": SGD(), "sync_period": 5}, "k"),
    (Group, {"params": "*"}, "parameters"),
    (Group, {"lr": 2.0}, "lr_multiplier"),
    (ParameterGroups, {"optimizer": SGD()}, "default"),
    (OneCycle, {"lr": 1.0, "total_steps": 9, "rise": 0.3}, "pct_start"),
    (OneCycle, {"max_lr": 1.0, "total_steps": 9}, "lr"),
    (OneCycle, {"lr": 1.0, "num_training_steps": 9}, "total_steps"),
    (WarmupCosine, {"lr": 1.0, "num_warmup_steps": 9}, "warmup_steps"),
    (WarmupCosine, {"lr": 1.0, "T_max": 9}, "total_steps"),
    (WarmupCosine, {"lr": 1.0, "final": 0.1}, "min_lr_ratio"),
    (CosineRestarts, {"lr": 1.0, "period": 9}, "T_0"),
    (CosineRestarts, {"lr": 1.0, "T_0": 9, "t_mul": 2}, "T_mult"),
    (CosineCycles, {"lr": 1.0, "cycles": 9}, "num_cycles"),
    (Polynomial, {"lr": 1.0, "total_steps": 9}, "total_iters"),
    (Linear, {"lr": 1.0, "start": 0.1}, "start_factor"),
    (Step, {"lr": 1.0, "size": 9}, "step_size"),
    (Exponential, {"lr": 1.0, "decay_rate": 0.9}, "gamma"),
    (InverseTime, {"lr": 1.0, "decay": 0.9}, "decay_rate"),
    (Cyclic, {"max_lr": 1.0}, "lr"),
    (MultiStep, {"lr": 1.0, "boundaries": [3]}, "milestones"),
    (PiecewiseConstant, {"lr": 1.0, "milestones": [3], "values": [1, 2]}, "factors"),
    (Noam, {"model_size": 512}, "d_model"),
    (WSD, {"lr": 1.0, "num_stable_steps": 1}, "stable_steps"),
    (WSD, {"lr": 1.0, "decay": 1}, "decay_steps"),
    (WSD, {"lr": 1.0, "shape": "cosine"}, "decay_type"),
    (Sequential, {"schedulers": ()}, "schedules"),
    (ClipByGlobalNorm, {"clipnorm": 1.0}, "max_norm"),
    (ClipByValue, {"clipvalue": 1.0}, "clip_value"),
    (CrossEntropy, {"class_weights": [1.0]}, "weight"),
    (CrossEntropy, {"smoothing": 0.1}, "label_smoothing"),
    (CrossEntropy, {"ignore_class": 0}, "ignore_index"),
    (BCEWithLogits, {"posweight": 1.0}, "pos_weight"),
    (Accuracy, {"axis": -1}, "class_axis"),
]


@pytest.mark.parametrize(("cls", "settings", "name"), FOREIGN, ids=lambda part: getattr(part, "__name__", str(part)))
def test_a_foreign_name_is_answered_with_the_one_here(cls, settings, name):
    with pytest.raises(ConfigurationError, match=rf"^{cls.__name__} has no setting '\w+'; it is called {name} here$"):
        cls(**settings)


@pytest.mark.parametrize("cls", COMPONENTS, ids=lambda cls: cls.__name__)
def test_no_component_takes_a_name_that_it_does_not_have(cls):
    with pytest.raises(ConfigurationError, match="no setting 'frobnicate'; it has"):
        cls(frobnicate=1)
    own = {each.name for each in fields(cls)} - {"reduction", "target"}
    for name in sorted({"last_epoch", "verbose", "foreach", "from_logits"} - own):
        with pytest.raises(ConfigurationError, match=f"no setting '{name}'; (?!it has)"):
            cls(**{name: 1})


@pytest.mark.parametrize("cls", COMPONENTS, ids=lambda cls: cls.__name__)
def test_constructors_keep_their_signature(cls):
    given = [each for each in inspect.signature(cls).parameters if each != "self"]
    assert sorted(given) == sorted(each.name for each in fields(cls) if each.init)


@pytest.mark.parametrize("cls", [cls for cls in OPTIMIZERS.values() if {"beta1", "beta2"} <= settings_of(cls).keys()])
def test_betas_stand_for_the_single_numbers(cls):
    names = [name for name in ("beta1", "beta2", "beta3") if name in settings_of(cls)]
    values = [0.3, 0.4, 0.5][: len(names)]
    assert cls(betas=values) == cls(betas=tuple(values)) == cls(**dict(zip(names, values, strict=True)))
    assert cls(betas=None) == cls()
    with pytest.raises(ConfigurationError, match="takes betas or beta1, not both"):
        cls(betas=values, beta1=0.3)
    for wrong in (0.9, (0.9,), (0.9,) * 4, "0.9"):
        with pytest.raises(ConfigurationError, match="betas must hold"):
            cls(betas=wrong)
    with pytest.raises(ConfigurationError, match="beta2 must be in"):
        cls(betas=(0.9, 1.0))


def test_other_settings_of_several_numbers_are_those_of_torch():
    assert Rprop(etas=(0.4, 1.1), step_sizes=[1e-5, 3.0]) == Rprop(
        eta_minus=0.4, eta_plus=1.1, step_min=1e-5, step_max=3.0
    )
    assert Adafactor(eps=(None, 1e-2)) == Adafactor(eps2=1e-2)
    assert CAME(betas=(0.8, 0.9, 0.95), eps=(1e-20, 1e-10)) == CAME(
        beta1=0.8, beta2=0.9, beta3=0.95, eps1=1e-20, eps2=1e-10
    )
    with pytest.raises(ConfigurationError, match="'betas'; it has"):
        SGD(betas=(0.9, 0.999))


def test_a_rule_with_betas_of_its_own_keeps_them():
    assert AggMo(betas=[0.0, 0.5]).betas == (0.0, 0.5)


def test_lowest_rates_are_given_as_rates_or_as_shares():
    assert CosineRestarts(0.5, 9, min_lr_ratio=0.1) == CosineRestarts(0.5, 9, eta_min=0.05)
    assert WarmupCosine(0.5, 0, 9, eta_min=0.125) == WarmupCosine(0.5, 0, 9, min_lr_ratio=0.25)
    assert WarmupCosine(lr=0.0, warmup_steps=0, total_steps=9, eta_min=0.0).min_lr_ratio == 0.0
    for make in (WarmupCosine, lambda *args, **settings: CosineRestarts(*args[:2], **settings)):
        with pytest.raises(ConfigurationError, match="not both"):
            make(0.5, 1, 9, eta_min=0.1, min_lr_ratio=0.1)
        with pytest.raises(ConfigurationError, match="above lr"):
            make(0.5, 1, 9, eta_min=0.6)
    with pytest.raises(ConfigurationError, match="lr must be"):
        WarmupCosine(warmup_steps=0, total_steps=9, eta_min=0.1)  # type: ignore[call-arg] # wrong on purpose


@pytest.mark.parametrize("sequence", [list, np.array, torch.tensor], ids=["list", "numpy", "torch"])
def test_lists_and_arrays_are_taken_for_tuples(sequence):
    assert MultiStep(0.1, milestones=sequence([30, 60])) == MultiStep(0.1, milestones=(30, 60))
    assert PiecewiseLinear(0.1, sequence([0, 4]), sequence([0.0, 1.0])) == PiecewiseLinear(0.1, (0, 4), (0.0, 1.0))
    assert PiecewiseConstant(0.1, sequence([4]), sequence([0.0, 1.0])) == PiecewiseConstant(0.1, (4,), (0.0, 1.0))
    assert AggMo(betas=sequence([0.0, 0.5])) == AggMo(betas=(0.0, 0.5))
    assert Muon(ns_coefficients=sequence([3.0, -4.0, 2.0])) == Muon(ns_coefficients=(3.0, -4.0, 2.0))
    assert AdamW(betas=sequence([0.25, 0.5])) == AdamW(betas=(0.25, 0.5))
    assert Group(ndim=sequence([0, 1])) == Group(ndim=(0, 1))
    assert hash(CrossEntropy(weight=sequence([1.0, 2.0]))) == hash(CrossEntropy(weight=(1.0, 2.0)))


def test_lists_of_components_are_taken_for_tuples():
    parts = [Constant(0.1), ConstantWithWarmup(0.1, 3)]
    assert Sequential(parts, [3]) == Sequential(tuple(parts), (3,))
    group = Group(["*.bias", "norm*"])
    assert group.patterns == ("*.bias", "norm*")
    assert ParameterGroups(SGD(), [group]) == ParameterGroups(SGD(), (group,))
    assert MultiStep(0.1, range(2, 9, 3)).milestones == (2, 5, 8)


def test_rules_take_the_rate_alone_by_position():
    assert Adam(0.1) == Adam(lr=0.1)
    with pytest.raises(
        ConfigurationError, match=r"SGD takes lr by position, got 2 values; name the others: momentum=\.\.\."
    ):
        SGD(0.1, 0.9)
    with pytest.raises(ConfigurationError, match="Adam was given lr twice"):
        Adam(0.1, lr=0.1)  # type: ignore[misc] # wrong on purpose
    with pytest.raises(ConfigurationError, match=r"CrossEntropy takes .* by position, got 5"):
        CrossEntropy(None, 0.0, -100, 1, "sum")  # type: ignore[call-arg] # wrong on purpose


def test_what_is_missing_is_named():
    with pytest.raises(ConfigurationError, match=r"^OneCycle needs lr, total_steps$"):
        OneCycle()  # type: ignore[call-arg] # wrong on purpose
    with pytest.raises(ConfigurationError, match=r"^Lookahead needs inner$"):
        Lookahead()  # type: ignore[call-arg] # wrong on purpose


def test_components_are_copied_changed_and_pickled_as_dataclasses_are():
    rule = Adan(betas=(0.5, 0.6, 0.7))
    assert copy.deepcopy(rule) == pickle.loads(pickle.dumps(rule)) == rule
    assert replace(rule, beta1=0.1) == Adan(beta1=0.1, beta2=0.6, beta3=0.7)
    assert rule == Adan(beta1=0.5, beta2=0.6, beta3=0.7)


def test_classes_with_a_constructor_of_their_own_are_left_alone():
    class Free(metaclass=Component):
        def __init__(self, *values: int, **others: int) -> None:
            self.all = (*values, *others.values())

    assert Free(1, 2, other=3).all == (1, 2, 3)


def test_groups_of_a_torch_optimizer_may_set_betas():
    params = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = RuleOptimizer([{"params": params[:1]}, {"params": params[1:], "betas": (0.5, 0.6)}], AdamW())
    assert [group["beta1"] for group in optimizer.param_groups] == [0.9, 0.5]
    assert [group["beta2"] for group in optimizer.param_groups] == [0.999, 0.6]
    with pytest.raises(ConfigurationError, match="no setting 'learning_rate'; it is called lr here"):
        RuleOptimizer([{"params": params, "learning_rate": 1.0}], AdamW())


@pytest.mark.parametrize("cls", [QHAdam, Lion])
def test_what_a_command_line_may_offer_includes_betas(cls):
    assert settings_of(cls)["betas"] is None
    assert settings_of(cls)["beta1"] is not None
