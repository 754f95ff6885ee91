"""Update rules: pure functions of arrays that run under numpy, torch and the tracer."""

from __future__ import annotations

from edgeopt.optimizers.adabelief import AdaBelief
from edgeopt.optimizers.adagrad import Adadelta, Adagrad
from edgeopt.optimizers.adahessian import AdaHessian
from edgeopt.optimizers.adam import Adam, AdamW
from edgeopt.optimizers.adam_mini import AdamMini
from edgeopt.optimizers.adamax import Adamax
from edgeopt.optimizers.adan import Adan
from edgeopt.optimizers.adanorm import AdaNorm
from edgeopt.optimizers.adaptive_muon import AdaMuon, NorMuon
from edgeopt.optimizers.ademamix import AdEMAMix, SimplifiedAdEMAMix
from edgeopt.optimizers.adopt import ADOPT
from edgeopt.optimizers.apollo import APOLLO, APOLLOMini
from edgeopt.optimizers.asgd import ASGD
from edgeopt.optimizers.averaging import Averaged, AveragedAdam, Averaging
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
from edgeopt.optimizers.bge_adam import BGEAdam
from edgeopt.optimizers.bounds import AdaBound, AdaMod, AMSBound
from edgeopt.optimizers.cocob import COCOB
from edgeopt.optimizers.config import from_config
from edgeopt.optimizers.dadaptation import DAdaptAdam, DAdaptation, DAdaptLion, DAdaptSGD
from edgeopt.optimizers.dadaptation_norms import DAdaptAdaGrad, DAdaptAdan
from edgeopt.optimizers.descent import Descent
from edgeopt.optimizers.diffgrad import DiffGrad
from edgeopt.optimizers.dion import Dion
from edgeopt.optimizers.dog import DoG
from edgeopt.optimizers.factored import CAME, Adafactor
from edgeopt.optimizers.fadam import FAdam
from edgeopt.optimizers.fromage import Fromage
from edgeopt.optimizers.galore import Fira, GaLore
from edgeopt.optimizers.genie import GENIE
from edgeopt.optimizers.grams import Grams
from edgeopt.optimizers.groups import Group, OptimizerLike, ParameterGroups, as_groups
from edgeopt.optimizers.hn_adam import HNAdam
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
from edgeopt.optimizers.kron import Kron
from edgeopt.optimizers.kronecker import AdaFisher, Eva
from edgeopt.optimizers.lamb import LAMB
from edgeopt.optimizers.laprop import LaProp
from edgeopt.optimizers.lars import LARS
from edgeopt.optimizers.lookahead import Lookahead, Ranger
from edgeopt.optimizers.lora_plus import lora_plus
from edgeopt.optimizers.lora_rite import LoRARITE
from edgeopt.optimizers.madgrad import MADGRAD
from edgeopt.optimizers.mars import MARS
from edgeopt.optimizers.mechanic import Mechanic
from edgeopt.optimizers.micro_adam import MicroAdam
from edgeopt.optimizers.momentum import FISTA, AccSGD, AggMo
from edgeopt.optimizers.momo import MoMo, MoMoAdam
from edgeopt.optimizers.muon import Muon
from edgeopt.optimizers.nadam import NAdam
from edgeopt.optimizers.novograd import NovoGrad
from edgeopt.optimizers.padam import PAdam
from edgeopt.optimizers.pid import PID
from edgeopt.optimizers.polyak import PolyakSGD
from edgeopt.optimizers.prodigy import Prodigy
from edgeopt.optimizers.projection import SGDP, AdamP
from edgeopt.optimizers.quasi_hyperbolic import QHM, QHAdam
from edgeopt.optimizers.radam import RAdam
from edgeopt.optimizers.registry import OPTIMIZERS
from edgeopt.optimizers.rmsprop import RMSprop
from edgeopt.optimizers.rprop import Rprop
from edgeopt.optimizers.schedule_free import ScheduleFree, ScheduleFreeAdamW, ScheduleFreeRAdam, ScheduleFreeSGD
from edgeopt.optimizers.sgd import SGD, SGDW
from edgeopt.optimizers.sgd_sai import SGDSaI
from edgeopt.optimizers.shampoo import Shampoo
from edgeopt.optimizers.sign import Lion, SignSGD, Tiger
from edgeopt.optimizers.sm3 import SM3
from edgeopt.optimizers.soap import SOAP
from edgeopt.optimizers.sofo import SOFO
from edgeopt.optimizers.sophia import SophiaG, SophiaH
from edgeopt.optimizers.spam import SPAM, StableSPAM
from edgeopt.optimizers.sparse import LazyAdam, SparseAdam, SparseSGD
from edgeopt.optimizers.stable_adamw import StableAdamW
from edgeopt.optimizers.swats import SWATS
from edgeopt.optimizers.unpublished import AdaMaxPlus, AMacP, EVAVariance
from edgeopt.optimizers.wrappers import Following, Wrapper
from edgeopt.optimizers.yogi import Yogi

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
    "OPTIMIZERS",
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
    "Adam",
    "AdamMini",
    "AdamP",
    "AdamW",
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
    "LaProp",
    "LazyAdam",
    "Lion",
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
    "ParameterGroups",
    "PolyakSGD",
    "Prodigy",
    "QHAdam",
    "RAdam",
    "RMSprop",
    "Rademacher",
    "Ranger",
    "Rprop",
    "Rule",
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
    "static",
    "zeros",
]
