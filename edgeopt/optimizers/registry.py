"""Every update rule by name. The contract tests run over this table."""

from __future__ import annotations

from edgeopt.components import Kind
from edgeopt.optimizers.base import Optimizer, Rule
from edgeopt.optimizers.pairs import PAIRS
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
from edgeopt.optimizers.rules.rate_free.dadaptation import DAdaptAdam, DAdaptLion, DAdaptSGD
from edgeopt.optimizers.rules.rate_free.dadaptation_norms import DAdaptAdaGrad, DAdaptAdan
from edgeopt.optimizers.rules.rate_free.dog import DoG
from edgeopt.optimizers.rules.rate_free.momo import MoMo, MoMoAdam
from edgeopt.optimizers.rules.rate_free.polyak import PolyakSGD
from edgeopt.optimizers.rules.rate_free.prodigy import Prodigy
from edgeopt.optimizers.rules.rate_free.schedule_free import ScheduleFreeAdamW, ScheduleFreeRAdam, ScheduleFreeSGD
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
from edgeopt.optimizers.wrappers.averaging import AveragedAdam
from edgeopt.optimizers.wrappers.lookahead import Ranger

__all__ = ["OPTIMIZER", "OPTIMIZERS"]

OPTIMIZERS: dict[str, type[Rule]] = {
    "acc_sgd": AccSGD,
    "adabelief": AdaBelief,
    "adabound": AdaBound,
    "adadelta": Adadelta,
    "adafactor": Adafactor,
    "adagrad": Adagrad,
    "adafisher": AdaFisher,
    "adahessian": AdaHessian,
    "adam": Adam,
    "adam_mini": AdamMini,
    "adamax": Adamax,
    "adamax_plus": AdaMaxPlus,
    "adamod": AdaMod,
    "adamp": AdamP,
    "adamuon": AdaMuon,
    "adamw": AdamW,
    "adan": Adan,
    "adanorm": AdaNorm,
    "ademamix": AdEMAMix,
    "adopt": ADOPT,
    "aggmo": AggMo,
    "amacp": AMacP,
    "amsbound": AMSBound,
    "apollo": APOLLO,
    "apollo_mini": APOLLOMini,
    "asgd": ASGD,
    "averaged_adam": AveragedAdam,
    "bge_adam": BGEAdam,
    "came": CAME,
    "cocob": COCOB,
    "dadapt_adagrad": DAdaptAdaGrad,
    "dadapt_adam": DAdaptAdam,
    "dadapt_adan": DAdaptAdan,
    "dadapt_lion": DAdaptLion,
    "dadapt_sgd": DAdaptSGD,
    "diffgrad": DiffGrad,
    "dion": Dion,
    "dog": DoG,
    "eva_variance": EVAVariance,
    "eva": Eva,
    "fadam": FAdam,
    "fira": Fira,
    "fista": FISTA,
    "fromage": Fromage,
    "galore": GaLore,
    "genie": GENIE,
    "grams": Grams,
    "hn_adam": HNAdam,
    "kron": Kron,
    "lamb": LAMB,
    "laprop": LaProp,
    "lars": LARS,
    "lazy_adam": LazyAdam,
    "lion": Lion,
    "lora_rite": LoRARITE,
    "madgrad": MADGRAD,
    "mars": MARS,
    "micro_adam": MicroAdam,
    "momo": MoMo,
    "momo_adam": MoMoAdam,
    "muon": Muon,
    "nadam": NAdam,
    "normuon": NorMuon,
    "novograd": NovoGrad,
    "padam": PAdam,
    "pid": PID,
    "polyak_sgd": PolyakSGD,
    "prodigy": Prodigy,
    "qhadam": QHAdam,
    "qhm": QHM,
    "radam": RAdam,
    "ranger": Ranger,
    "rmsprop": RMSprop,
    "rprop": Rprop,
    "schedule_free_adamw": ScheduleFreeAdamW,
    "schedule_free_radam": ScheduleFreeRAdam,
    "schedule_free_sgd": ScheduleFreeSGD,
    "sgd": SGD,
    "sgd_sai": SGDSaI,
    "sgdp": SGDP,
    "sgdw": SGDW,
    "shampoo": Shampoo,
    "signsgd": SignSGD,
    "simplified_ademamix": SimplifiedAdEMAMix,
    "sm3": SM3,
    "soap": SOAP,
    "sofo": SOFO,
    "sophia_g": SophiaG,
    "sophia_h": SophiaH,
    "spam": SPAM,
    "sparse_adam": SparseAdam,
    "sparse_sgd": SparseSGD,
    "stable_adamw": StableAdamW,
    "stable_spam": StableSPAM,
    "swats": SWATS,
    "tiger": Tiger,
    "yogi": Yogi,
}

OPTIMIZER = Kind(
    name="optimizer",
    base=Optimizer,  # type: ignore[type-abstract]  # only instances of it are made
    registry=OPTIMIZERS,
    example="edgeopt.optimizers.AdamW(lr=1e-3)",
    pairs=PAIRS,
)
