"""Update rules: pure functions of arrays that run under numpy, torch and the tracer."""

from __future__ import annotations

from edgeopt.optimizers.base import (
    Arrays,
    Collective,
    GroupArrays,
    Optimizer,
    Rule,
    Updated,
    UpdatedAll,
    initial_state,
    static,
    zeros,
)
from edgeopt.optimizers.config import from_config
from edgeopt.optimizers.given import OptimizerLike, as_groups
from edgeopt.optimizers.groups import Group, ParameterGroups
from edgeopt.optimizers.ingredients import (
    Curvature,
    GaussNewtonBartlett,
    GaussNewtonSketch,
    HutchinsonDiagonal,
    Ingredient,
    KroneckerFactor,
    LossValue,
    Measurement,
    Noise,
    Normal,
    Rademacher,
    Tangents,
    Uniform,
)
from edgeopt.optimizers.kept import StateLike
from edgeopt.optimizers.pairs import (
    PAIRS,
    Adagrad8bit,
    Adam4bit,
    Adam8bit,
    AdamFp8,
    AdamW4bit,
    AdamW8bit,
    AdamWFp8,
    AdEMAMix8bit,
    LAMB8bit,
    LARS8bit,
    Lion8bit,
    Pair,
    RMSprop8bit,
    SGD8bit,
)
from edgeopt.optimizers.per_layer import per_layer_quant
from edgeopt.optimizers.registry import OPTIMIZER, OPTIMIZERS
from edgeopt.optimizers.rules.adaptive.adabelief import AdaBelief
from edgeopt.optimizers.rules.adaptive.adagrad import Adadelta, Adagrad
from edgeopt.optimizers.rules.adaptive.adam import Adam, AdamW
from edgeopt.optimizers.rules.adaptive.adamax import Adamax
from edgeopt.optimizers.rules.adaptive.adan import Adan
from edgeopt.optimizers.rules.adaptive.adanorm import AdaNorm
from edgeopt.optimizers.rules.adaptive.ademamix import AdEMAMix, SimplifiedAdEMAMix
from edgeopt.optimizers.rules.adaptive.adopt import ADOPT
from edgeopt.optimizers.rules.adaptive.bge_adam import BGEAdam
from edgeopt.optimizers.rules.adaptive.bounds import AdaBound, AdaMod, AMSBound
from edgeopt.optimizers.rules.adaptive.diffgrad import DiffGrad
from edgeopt.optimizers.rules.adaptive.fadam import FAdam
from edgeopt.optimizers.rules.adaptive.grams import Grams
from edgeopt.optimizers.rules.adaptive.hn_adam import HNAdam
from edgeopt.optimizers.rules.adaptive.laprop import LaProp
from edgeopt.optimizers.rules.adaptive.madgrad import MADGRAD
from edgeopt.optimizers.rules.adaptive.mars import MARS
from edgeopt.optimizers.rules.adaptive.nadam import NAdam
from edgeopt.optimizers.rules.adaptive.padam import PAdam
from edgeopt.optimizers.rules.adaptive.radam import RAdam
from edgeopt.optimizers.rules.adaptive.rmsprop import RMSprop
from edgeopt.optimizers.rules.adaptive.spam import SPAM, StableSPAM
from edgeopt.optimizers.rules.adaptive.stable_adamw import StableAdamW
from edgeopt.optimizers.rules.adaptive.unpublished import AdaMaxPlus, AMacP, EVAVariance
from edgeopt.optimizers.rules.adaptive.yogi import Yogi
from edgeopt.optimizers.rules.curvature.adahessian import AdaHessian
from edgeopt.optimizers.rules.curvature.kronecker import AdaFisher, Eva
from edgeopt.optimizers.rules.curvature.sofo import SOFO
from edgeopt.optimizers.rules.curvature.sophia import SophiaG, SophiaH
from edgeopt.optimizers.rules.descent import Descent
from edgeopt.optimizers.rules.layerwise.fromage import Fromage
from edgeopt.optimizers.rules.layerwise.lamb import LAMB
from edgeopt.optimizers.rules.layerwise.lars import LARS
from edgeopt.optimizers.rules.layerwise.novograd import NovoGrad
from edgeopt.optimizers.rules.layerwise.projection import SGDP, AdamP
from edgeopt.optimizers.rules.lean.adam_mini import AdamMini
from edgeopt.optimizers.rules.lean.apollo import APOLLO, APOLLOMini
from edgeopt.optimizers.rules.lean.factored import CAME, Adafactor
from edgeopt.optimizers.rules.lean.galore import Fira, GaLore
from edgeopt.optimizers.rules.lean.micro_adam import MicroAdam
from edgeopt.optimizers.rules.lean.sm3 import SM3
from edgeopt.optimizers.rules.lean.sparse import LazyAdam, SparseAdam, SparseSGD
from edgeopt.optimizers.rules.matrix.adaptive_muon import AdaMuon, NorMuon
from edgeopt.optimizers.rules.matrix.dion import Dion
from edgeopt.optimizers.rules.matrix.kron import Kron
from edgeopt.optimizers.rules.matrix.lora_rite import LoRARITE
from edgeopt.optimizers.rules.matrix.muon import Muon
from edgeopt.optimizers.rules.matrix.shampoo import Shampoo
from edgeopt.optimizers.rules.matrix.soap import SOAP
from edgeopt.optimizers.rules.rate_free.cocob import COCOB
from edgeopt.optimizers.rules.rate_free.dadaptation import DAdaptAdam, DAdaptation, DAdaptLion, DAdaptSGD
from edgeopt.optimizers.rules.rate_free.dadaptation_norms import DAdaptAdaGrad, DAdaptAdan
from edgeopt.optimizers.rules.rate_free.dog import DoG
from edgeopt.optimizers.rules.rate_free.momo import MoMo, MoMoAdam
from edgeopt.optimizers.rules.rate_free.polyak import PolyakSGD
from edgeopt.optimizers.rules.rate_free.prodigy import Prodigy
from edgeopt.optimizers.rules.rate_free.schedule_free import (
    ScheduleFree,
    ScheduleFreeAdamW,
    ScheduleFreeRAdam,
    ScheduleFreeSGD,
)
from edgeopt.optimizers.rules.sgd.asgd import ASGD
from edgeopt.optimizers.rules.sgd.genie import GENIE
from edgeopt.optimizers.rules.sgd.momentum import FISTA, AccSGD, AggMo
from edgeopt.optimizers.rules.sgd.pid import PID
from edgeopt.optimizers.rules.sgd.quasi_hyperbolic import QHM, QHAdam
from edgeopt.optimizers.rules.sgd.rprop import Rprop
from edgeopt.optimizers.rules.sgd.sgd import SGD, SGDW
from edgeopt.optimizers.rules.sgd.sgd_sai import SGDSaI
from edgeopt.optimizers.rules.sgd.sign import Lion, SignSGD, Tiger
from edgeopt.optimizers.rules.sgd.swats import SWATS
from edgeopt.optimizers.wrappers.averaging import Averaged, AveragedAdam, Averaging
from edgeopt.optimizers.wrappers.lookahead import Lookahead, Ranger
from edgeopt.optimizers.wrappers.lora_plus import lora_plus
from edgeopt.optimizers.wrappers.mechanic import Mechanic
from edgeopt.optimizers.wrappers.quantized_state import QuantizedState
from edgeopt.optimizers.wrappers.wrapper import Following, Wrapper

__all__ = [
    "ADOPT",
    "APOLLO",
    "ASGD",
    "CAME",
    "COCOB",
    "FISTA",
    "GENIE",
    "LAMB",
    "LARS",
    "MADGRAD",
    "MARS",
    "OPTIMIZER",
    "OPTIMIZERS",
    "PAIRS",
    "PID",
    "QHM",
    "SGD",
    "SGDP",
    "SGDW",
    "SM3",
    "SOAP",
    "SOFO",
    "SPAM",
    "SWATS",
    "AMSBound",
    "AMacP",
    "APOLLOMini",
    "AccSGD",
    "AdEMAMix",
    "AdEMAMix8bit",
    "AdaBelief",
    "AdaBound",
    "AdaFisher",
    "AdaHessian",
    "AdaMaxPlus",
    "AdaMod",
    "AdaMuon",
    "AdaNorm",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adagrad8bit",
    "Adam",
    "Adam4bit",
    "Adam8bit",
    "AdamFp8",
    "AdamMini",
    "AdamP",
    "AdamW",
    "AdamW4bit",
    "AdamW8bit",
    "AdamWFp8",
    "Adamax",
    "Adan",
    "AggMo",
    "Arrays",
    "Averaged",
    "AveragedAdam",
    "Averaging",
    "BGEAdam",
    "Collective",
    "Curvature",
    "DAdaptAdaGrad",
    "DAdaptAdam",
    "DAdaptAdan",
    "DAdaptLion",
    "DAdaptSGD",
    "DAdaptation",
    "Descent",
    "DiffGrad",
    "Dion",
    "DoG",
    "EVAVariance",
    "Eva",
    "FAdam",
    "Fira",
    "Following",
    "Fromage",
    "GaLore",
    "GaussNewtonBartlett",
    "GaussNewtonSketch",
    "Grams",
    "Group",
    "GroupArrays",
    "HNAdam",
    "HutchinsonDiagonal",
    "Ingredient",
    "Kron",
    "KroneckerFactor",
    "LAMB8bit",
    "LARS8bit",
    "LaProp",
    "LazyAdam",
    "Lion",
    "Lion8bit",
    "LoRARITE",
    "Lookahead",
    "LossValue",
    "Measurement",
    "Mechanic",
    "MicroAdam",
    "MoMo",
    "MoMoAdam",
    "Muon",
    "NAdam",
    "Noise",
    "NorMuon",
    "Normal",
    "NovoGrad",
    "Optimizer",
    "OptimizerLike",
    "PAdam",
    "Pair",
    "ParameterGroups",
    "PolyakSGD",
    "Prodigy",
    "QHAdam",
    "QuantizedState",
    "RAdam",
    "RMSprop",
    "RMSprop8bit",
    "Rademacher",
    "Ranger",
    "Rprop",
    "Rule",
    "SGD8bit",
    "SGDSaI",
    "ScheduleFree",
    "ScheduleFreeAdamW",
    "ScheduleFreeRAdam",
    "ScheduleFreeSGD",
    "Shampoo",
    "SignSGD",
    "SimplifiedAdEMAMix",
    "SophiaG",
    "SophiaH",
    "SparseAdam",
    "SparseSGD",
    "StableAdamW",
    "StableSPAM",
    "StateLike",
    "Tangents",
    "Tiger",
    "Uniform",
    "Updated",
    "UpdatedAll",
    "Wrapper",
    "Yogi",
    "as_groups",
    "from_config",
    "initial_state",
    "lora_plus",
    "per_layer_quant",
    "static",
    "zeros",
]
