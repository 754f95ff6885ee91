"""Every update rule by name. The contract tests run over this table."""

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
from edgeopt.optimizers.averaging import AveragedAdam
from edgeopt.optimizers.base import Rule
from edgeopt.optimizers.bge_adam import BGEAdam
from edgeopt.optimizers.bounds import AdaBound, AdaMod, AMSBound
from edgeopt.optimizers.cocob import COCOB
from edgeopt.optimizers.dadaptation import DAdaptAdam, DAdaptLion, DAdaptSGD
from edgeopt.optimizers.dadaptation_norms import DAdaptAdaGrad, DAdaptAdan
from edgeopt.optimizers.diffgrad import DiffGrad
from edgeopt.optimizers.dion import Dion
from edgeopt.optimizers.dog import DoG
from edgeopt.optimizers.factored import CAME, Adafactor
from edgeopt.optimizers.fadam import FAdam
from edgeopt.optimizers.fromage import Fromage
from edgeopt.optimizers.galore import Fira, GaLore
from edgeopt.optimizers.genie import GENIE
from edgeopt.optimizers.grams import Grams
from edgeopt.optimizers.hn_adam import HNAdam
from edgeopt.optimizers.kron import Kron
from edgeopt.optimizers.kronecker import AdaFisher, Eva
from edgeopt.optimizers.lamb import LAMB
from edgeopt.optimizers.laprop import LaProp
from edgeopt.optimizers.lars import LARS
from edgeopt.optimizers.lookahead import Ranger
from edgeopt.optimizers.lora_rite import LoRARITE
from edgeopt.optimizers.madgrad import MADGRAD
from edgeopt.optimizers.mars import MARS
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
from edgeopt.optimizers.rmsprop import RMSprop
from edgeopt.optimizers.rprop import Rprop
from edgeopt.optimizers.schedule_free import ScheduleFreeAdamW, ScheduleFreeRAdam, ScheduleFreeSGD
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
from edgeopt.optimizers.yogi import Yogi

__all__ = ["OPTIMIZERS"]

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
