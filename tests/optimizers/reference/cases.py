"""Which of our rules equals which class of which package, with which settings.

`generate.py` runs the packages and writes goldens; tests/optimizers/test_reference.py compares our rules with them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from edgeopt import optimizers as o

Shapes = tuple[tuple[int, ...], ...]


class Package(NamedTuple):
    distribution: str
    module: str


class Case(NamedTuple):
    name: str
    ours: o.Optimizer
    package: Package
    reference: str  # its class or function
    theirs: dict[str, Any]  # its settings; a text that begins with "torch." stands for what it names
    run: str = "plain"  # the function of runners.py that makes and steps it
    shapes: Shapes = ((6, 4), (5,))
    inputs: str = "wide"  # see `inputs` in generate.py
    # Relative to the parameter, or to 1 where that is smaller: after 25 steps in float64 under NumPy, and after 200 in
    # float32 on ONNX Runtime.
    float64: float = 1e-12
    float32: float = 2e-5
    view: bool = False  # compare what is evaluated instead of the parameter; in float64 only
    why: str = ""  # the inputs or tolerances are not the usual ones


ADABELIEF_PYTORCH = Package("adabelief-pytorch", "adabelief_pytorch")
ADABOUND = Package("adabound", "adabound")
ADAM_MINI = Package("adam-mini", "adam_mini")
APOLLO_TORCH = Package("apollo-torch", "apollo_torch")
CAME_PYTORCH = Package("came-pytorch", "came_pytorch")
DADAPTATION = Package("dadaptation", "dadaptation")
FIRA = Package("fira", "fira")
GALORE_TORCH = Package("galore-torch", "galore_torch")
KRON_TORCH = Package("kron-torch", "kron_torch")
LION_PYTORCH = Package("lion-pytorch", "lion_pytorch")
MUON_OPTIMIZER = Package("muon-optimizer", "muon")
OPTAX = Package("optax", "optax")
PRODIGYOPT = Package("prodigyopt", "prodigyopt")
PYTORCH_LAMB = Package("pytorch-lamb", "pytorch_lamb")
PYTORCH_OPTIMIZER = Package("pytorch-optimizer", "pytorch_optimizer")
SCHEDULEFREE = Package("schedulefree", "schedulefree")
SOPHIA_OPT = Package("sophia-opt", "sophia_opt")
TIMM = Package("timm", "timm.optim")
TORCH = Package("torch", "torch.optim")
TORCH_OPTIMIZER = Package("torch-optimizer", "torch_optimizer")
EPS32 = 1.1920928955078125e-07  # the machine epsilon of float32
MATRICES = ((6, 4), (4, 6))
SQUARE = ((4, 4), (5,))
TENSORS = ((6, 4), (4, 6), (5,), (2, 3, 4))
SMALL_ROOT = "it adds 1e-15 under the root"

# Rows of a table, not an argument in each line.
# fmt: off
CASES = [
    # torch
    Case("sgd", o.SGD(0.01, weight_decay=0.05), TORCH, "SGD", {"lr": 0.01, "weight_decay": 0.05}),
    Case("sgd, momentum", o.SGD(0.01, momentum=0.9, dampening=0.3), TORCH, "SGD",
         {"lr": 0.01, "momentum": 0.9, "dampening": 0.3}),
    Case("sgd, nesterov", o.SGD(0.01, momentum=0.9, nesterov=True, maximize=True), TORCH, "SGD",
         {"lr": 0.01, "momentum": 0.9, "nesterov": True, "maximize": True}),
    Case("asgd", o.ASGD(0.01, lambd=0.1, t0=8.0, weight_decay=0.05), TORCH, "ASGD",
         {"lr": 0.01, "lambd": 0.1, "t0": 8.0, "weight_decay": 0.05}, float64=3e-7,
         why="torch keeps the rate in float32"),
    Case("rprop", o.Rprop(0.01), TORCH, "Rprop", {"lr": 0.01}),
    Case("rprop, other", o.Rprop(0.02, eta_minus=0.4, eta_plus=1.3, step_min=1e-3, step_max=0.05), TORCH, "Rprop",
         {"lr": 0.02, "etas": (0.4, 1.3), "step_sizes": (1e-3, 0.05)}),
    Case("adam", o.Adam(0.01, weight_decay=0.05), TORCH, "Adam", {"lr": 0.01, "weight_decay": 0.05}),
    Case("adam, amsgrad", o.Adam(0.01, amsgrad=True), TORCH, "Adam", {"lr": 0.01, "amsgrad": True}),
    Case("adamw", o.AdamW(0.01), TORCH, "AdamW", {"lr": 0.01}),
    Case("adamw, other", o.AdamW(0.02, beta1=0.6, beta2=0.95, eps=1e-4, weight_decay=0.1, amsgrad=True, maximize=True),
         TORCH, "AdamW",
         {"lr": 0.02, "betas": (0.6, 0.95), "eps": 1e-4, "weight_decay": 0.1, "amsgrad": True, "maximize": True}),
    Case("adamax", o.Adamax(0.01, weight_decay=0.05), TORCH, "Adamax", {"lr": 0.01, "weight_decay": 0.05}),
    Case("adamax_plus", o.AdaMaxPlus(0.01, clip_inf=1e6, weight_decay=0.05), TORCH, "Adamax",
         {"lr": 0.01, "weight_decay": 0.05}),
    Case("eva_variance", o.EVAVariance(0.01, sensitivity=0.0, eps=1e-4), TORCH, "Adam", {"lr": 0.01, "eps": 1e-4}),
    Case("averaged_adam", o.AveragedAdam(0.01), TORCH, "Adam", {"lr": 0.01}),
    Case("lazy_adam", o.LazyAdam(0.01, weight_decay=0.05), TORCH, "Adam", {"lr": 0.01, "weight_decay": 0.05},
         "unless_zero", inputs="rows"),
    Case("nadam", o.NAdam(0.01, weight_decay=0.05), TORCH, "NAdam", {"lr": 0.01, "weight_decay": 0.05}, float64=1e-8,
         why="torch keeps the product in float32"),
    Case("nadam, other", o.NAdam(0.01, momentum_decay=0.1, eps=1e-4, weight_decay=0.05, decay="before"), TORCH, "NAdam",
         {"lr": 0.01, "momentum_decay": 0.1, "eps": 1e-4, "weight_decay": 0.05, "decoupled_weight_decay": True},
         float64=1e-8, why="torch keeps the product in float32"),
    Case("radam", o.RAdam(0.01, weight_decay=0.05), TORCH, "RAdam", {"lr": 0.01, "weight_decay": 0.05}),
    Case("rmsprop", o.RMSprop(0.01, momentum=0.9, weight_decay=0.05), TORCH, "RMSprop",
         {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.05}),
    Case("rmsprop, centered", o.RMSprop(0.01, alpha=0.8, centered=True, eps=1e-5), TORCH, "RMSprop",
         {"lr": 0.01, "alpha": 0.8, "centered": True, "eps": 1e-5}),
    Case("adagrad", o.Adagrad(0.01, lr_decay=0.1, initial_accumulator_value=0.2, eps=1e-4, weight_decay=0.05), TORCH,
         "Adagrad", {"lr": 0.01, "lr_decay": 0.1, "initial_accumulator_value": 0.2, "eps": 1e-4, "weight_decay": 0.05}),
    Case("adadelta", o.Adadelta(weight_decay=0.05), TORCH, "Adadelta", {"weight_decay": 0.05}),
    Case("adafactor", o.Adafactor(0.01, eps1=EPS32, weight_decay=0.05), TORCH, "Adafactor",
         {"lr": 0.01, "eps": (EPS32, 1e-3), "weight_decay": 0.05}, shapes=TENSORS),
    Case("adafactor, other", o.Adafactor(0.5, eps1=EPS32, beta2_decay=-0.6, d=1.5, maximize=True), TORCH, "Adafactor",
         {"lr": 0.5, "eps": (EPS32, 1e-3), "beta2_decay": -0.6, "d": 1.5, "maximize": True}, shapes=TENSORS),
    Case("sparse_adam", o.SparseAdam(0.01), TORCH, "SparseAdam", {"lr": 0.01}, "sparse", inputs="rows"),
    Case("sparse_sgd", o.SparseSGD(0.01), TORCH, "SGD", {"lr": 0.01}, "sparse", inputs="rows"),
    Case("muon, not rounded", o.Muon(0.01), TORCH, "Muon", {"lr": 0.01}, "without_bfloat16", MATRICES, float32=1e-4,
         why="the iteration amplifies rounding"),
    Case("muon, other, not rounded",
         o.Muon(0.02, momentum=0.8, nesterov=False, adjust_lr_fn="match_rms_adamw", weight_decay=0.05), TORCH, "Muon",
         {"lr": 0.02, "momentum": 0.8, "nesterov": False, "adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.05},
         "without_bfloat16", MATRICES, float32=1e-4, why="the iteration amplifies rounding"),
    Case("muon", o.Muon(0.01), TORCH, "Muon", {"lr": 0.01}, shapes=MATRICES, inputs="even", float64=1.7e-3,
         float32=8e-3, why="torch rounds to bfloat16: 1 % of the distance moved"),
    Case("averaged, mean", o.Averaged(o.SGD(0.01)), TORCH, "swa_utils.AveragedModel", {"lr": 0.01}, "averaged",
         view=True),
    Case("averaged, ema", o.Averaged(o.SGD(0.01), mode="ema", beta=0.8), TORCH, "swa_utils.AveragedModel",
         {"lr": 0.01, "decay": 0.8}, "averaged", view=True),
    # Packages of authors
    Case("adabelief", o.AdaBelief(0.01, weight_decay=0.05), ADABELIEF_PYTORCH, "AdaBelief",
         {"lr": 0.01, "weight_decay": 0.05, "rectify": False, "print_change_log": False}),
    Case("adabelief, amsgrad", o.AdaBelief(0.01, amsgrad=True, eps=1e-8), ADABELIEF_PYTORCH, "AdaBelief",
         {"lr": 0.01, "amsgrad": True, "eps": 1e-8, "rectify": False, "print_change_log": False}),
    Case("adabound", o.AdaBound(0.01, gamma=0.1, weight_decay=0.05), ADABOUND, "AdaBound",
         {"lr": 0.01, "gamma": 0.1, "weight_decay": 0.05}),
    Case("amsbound", o.AMSBound(0.01), ADABOUND, "AdaBound", {"lr": 0.01, "amsbound": True}),
    Case("adam_mini", o.AdamMini(0.01, weight_decay=0.05), ADAM_MINI, "Adam_mini",
         {"lr": 0.01, "weight_decay": 0.05, "verbose": False}, "with_name"),
    Case("apollo", o.APOLLO(0.01, rank=2, scale=4.0, weight_decay=0.1), APOLLO_TORCH, "apollo.AdamW",
         {"lr": 0.01, "rank": 2, "scale": 4.0, "weight_decay": 0.1}, "apollo", MATRICES, "even"),
    Case("apollo_mini", o.APOLLOMini(0.01), APOLLO_TORCH, "apollo.AdamW",
         {"lr": 0.01, "rank": 1, "scale": 128.0, "scale_type": "tensor"}, "apollo", MATRICES, "even"),
    Case("came", o.CAME(0.01, weight_decay=0.05), CAME_PYTORCH, "CAME", {"lr": 0.01, "weight_decay": 0.05},
         shapes=TENSORS, inputs="even"),
    Case("dadapt_adam", o.DAdaptAdam(weight_decay=0.05), DADAPTATION, "DAdaptAdam", {"weight_decay": 0.05}),
    Case("dadapt_adam, other",
         o.DAdaptAdam(d0=1e-4, growth_rate=1.1, weight_decay=0.05, decouple=True, use_bias_correction=True),
         DADAPTATION, "DAdaptAdam",
         {"d0": 1e-4, "growth_rate": 1.1, "weight_decay": 0.05, "decouple": True, "use_bias_correction": True}),
    Case("dadapt_sgd", o.DAdaptSGD(momentum=0.9, d0=1e-2, growth_rate=1.02), DADAPTATION, "DAdaptSGD",
         {"momentum": 0.9, "d0": 1e-2, "growth_rate": 1.02}, inputs="even"),
    Case("dadapt_lion", o.DAdaptLion(weight_decay=0.05, d0=1e-3), DADAPTATION, "DAdaptLion",
         {"weight_decay": 0.05, "d0": 1e-3}),
    Case("galore", o.GaLore(0.01, rank=2, iterations=60, weight_decay=0.1), GALORE_TORCH, "adamw.AdamW",
         {"lr": 0.01, "rank": 2, "scale": 0.25, "weight_decay": 0.1}, "galore", ((5, 3), (4, 6), (5,)), "even"),
    Case("fira", o.Fira(0.01, rank=2, iterations=60, weight_decay=0.1), FIRA, "fira_adamw.AdamW",
         {"lr": 0.01, "rank": 2, "weight_decay": 0.1}, "fira", ((5, 3), (4, 6), (5,)), "even"),
    Case("dadapt_adagrad", o.DAdaptAdaGrad(d0=1e-3, momentum=0.9, weight_decay=0.05), DADAPTATION, "DAdaptAdaGrad",
         {"d0": 1e-3, "momentum": 0.9, "weight_decay": 0.05}),
    Case("dadapt_adan", o.DAdaptAdan(d0=1e-3), DADAPTATION, "DAdaptAdan", {"d0": 1e-3}),
    Case("dadapt_adan, decoupled", o.DAdaptAdan(d0=1e-3, no_prox=True), DADAPTATION, "DAdaptAdan",
         {"d0": 1e-3, "no_prox": True}),
    Case("kron", o.Kron(0.01), KRON_TORCH, "Kron", {"lr": 0.01}, "kron", TENSORS, "even"),
    Case("kron, every second",
         o.Kron(0.01, precond_init_scale=4.0, precond_lr=0.2, max_share=0.5, min_share=0.5, weight_decay=0.05),
         KRON_TORCH, "Kron",
         {"lr": 0.01, "precond_init_scale": 4.0, "precond_lr": 0.2, "preconditioner_update_probability": 0.5,
          "weight_decay": 0.05}, "kron", MATRICES, "even"),
    Case("lion", o.Lion(0.01, weight_decay=0.1), LION_PYTORCH, "Lion", {"lr": 0.01, "weight_decay": 0.1}),
    Case("muon, keller, not rounded", o.Muon(0.02, weight_decay=0.0), MUON_OPTIMIZER, "SingleDeviceMuon", {"lr": 0.02},
         "without_bfloat16", MATRICES, "even", float64=1e-6, float32=1e-4,
         why="it adds eps to the norm; the iteration amplifies rounding"),
    Case("prodigy", o.Prodigy(d0=1e-3, growth_rate=1.02), PRODIGYOPT, "Prodigy", {"d0": 1e-3, "growth_rate": 1.02},
         float32=1e-4, why="the distance is a quotient of long sums"),
    Case("prodigy, unlimited", o.Prodigy(d0=1e-3), PRODIGYOPT, "Prodigy", {"d0": 1e-3}, shapes=((5,),), inputs="even",
         float32=1e-4, why="the distance is a quotient of long sums"),
    Case("prodigy, other",
         o.Prodigy(weight_decay=0.05, use_bias_correction=True, safeguard_warmup=True, d0=1e-4, growth_rate=1.2,
                   slice_p=2), PRODIGYOPT, "Prodigy",
         {"weight_decay": 0.05, "use_bias_correction": True, "safeguard_warmup": True, "d0": 1e-4, "growth_rate": 1.2,
          "slice_p": 2}),
    Case("schedule_free_adamw", o.ScheduleFreeAdamW(0.01, warmup_steps=5.0, weight_decay=0.05), SCHEDULEFREE,
         "AdamWScheduleFree", {"lr": 0.01, "warmup_steps": 5, "weight_decay": 0.05}, "schedule_free"),
    Case("schedule_free_adamw, evaluated", o.ScheduleFreeAdamW(0.01, warmup_steps=5.0, weight_decay=0.05), SCHEDULEFREE,
         "AdamWScheduleFree", {"lr": 0.01, "warmup_steps": 5, "weight_decay": 0.05}, "schedule_free_evaluated",
         view=True),
    Case("schedule_free_sgd", o.ScheduleFreeSGD(0.01, r=1.0, weight_decay=0.05), SCHEDULEFREE, "SGDScheduleFree",
         {"lr": 0.01, "r": 1.0, "weight_decay": 0.05}, "schedule_free"),
    Case("schedule_free_sgd, evaluated", o.ScheduleFreeSGD(0.01), SCHEDULEFREE, "SGDScheduleFree", {"lr": 0.01},
         "schedule_free_evaluated", view=True),
    Case("schedule_free_radam", o.ScheduleFreeRAdam(0.01), SCHEDULEFREE, "RAdamScheduleFree", {"lr": 0.01},
         "schedule_free"),
    Case("schedule_free_radam, loud", o.ScheduleFreeRAdam(0.01, silent_sgd_phase=False, weight_decay=0.05),
         SCHEDULEFREE, "RAdamScheduleFree", {"lr": 0.01, "silent_sgd_phase": False, "weight_decay": 0.05},
         "schedule_free"),
    Case("sophia_g", o.SophiaG(0.01, every=3), SOPHIA_OPT, "SophiaG", {"lr": 0.01}, "gauss_newton"),
    Case("sophia_g, clipped by half", o.SophiaG(0.01, rho=0.4, every=3), SOPHIA_OPT, "SophiaG",
         {"lr": 0.01, "rho": 0.4}, "gauss_newton"),
    # optax
    Case("nadam, simple", o.NAdam(0.01, variant="simple"), OPTAX, "nadam", {"learning_rate": 0.01}, "optax"),
    Case("adabelief, optax", o.AdaBelief(0.01), OPTAX, "adabelief", {"learning_rate": 0.01}, "optax"),
    Case("yogi, optax", o.Yogi(0.01), OPTAX, "yogi", {"learning_rate": 0.01}, "optax"),
    Case("lamb", o.LAMB(0.01, weight_decay=0.05), OPTAX, "lamb", {"learning_rate": 0.01, "weight_decay": 0.05},
         "optax"),
    Case("fromage, optax", o.Fromage(0.01), OPTAX, "fromage", {"learning_rate": 0.01}, "optax"),
    Case("dog", o.DoG(reps_rel=0.1, weight_decay=0.05), OPTAX, "contrib.dog",
         {"init_step": ("heuristic", 0.1), "weight_decay": 0.05}, "optax"),
    Case("rmsprop, eps in the root", o.RMSprop(0.01, alpha=0.9, eps_in_root=True), OPTAX, "rmsprop",
         {"learning_rate": 0.01, "decay": 0.9, "eps": 1e-8}, "optax"),
    Case("adagrad, eps in the root", o.Adagrad(0.01, initial_accumulator_value=0.1, eps=1e-7, eps_in_root=True), OPTAX,
         "adagrad", {"learning_rate": 0.01, "initial_accumulator_value": 0.1, "eps": 1e-7}, "optax"),
    Case("cocob", o.COCOB(weight_decay=0.05), OPTAX, "contrib.cocob", {"weight_decay": 0.05}, "optax"),
    Case("adopt", o.ADOPT(0.01), OPTAX, "contrib.adopt", {"learning_rate": 0.01}, "optax"),
    Case("ademamix, optax", o.AdEMAMix(0.01), OPTAX, "contrib.ademamix", {"learning_rate": 0.01}, "optax"),
    Case("simplified_ademamix", o.SimplifiedAdEMAMix(1e-3, alpha=2.0), OPTAX, "contrib.simplified_ademamix",
         {"learning_rate": 1e-3, "alpha": 2.0}, "optax"),
    Case("momo", o.MoMo(), OPTAX, "contrib.momo", {}, "optax_with_loss"),
    Case("momo, other",
         o.MoMo(0.05, beta=0.7, lower_bound=0.5, weight_decay=0.05, adapt_lower_bound=True), OPTAX, "contrib.momo",
         {"learning_rate": 0.05, "beta": 0.7, "lower_bound": 0.5, "weight_decay": 0.05, "adapt_lower_bound": True},
         "optax_with_loss"),
    Case("momo_adam", o.MoMoAdam(), OPTAX, "contrib.momo_adam", {}, "optax_with_loss"),
    Case("momo_adam, other",
         o.MoMoAdam(0.5, beta1=0.7, beta2=0.9, eps=1e-3, lower_bound=0.5, weight_decay=0.05, adapt_lower_bound=True),
         OPTAX, "contrib.momo_adam",
         {"learning_rate": 0.5, "b1": 0.7, "b2": 0.9, "eps": 1e-3, "lower_bound": 0.5, "weight_decay": 0.05,
          "adapt_lower_bound": True}, "optax_with_loss"),
    Case("polyak_sgd", o.PolyakSGD(), OPTAX, "polyak_sgd", {}, "optax_with_loss"),
    Case("polyak_sgd, other", o.PolyakSGD(0.01, c=0.5, lower_bound=2.0, eps=0.2), OPTAX, "polyak_sgd",
         {"max_learning_rate": 0.02, "scaling": 0.5, "f_min": 2.0, "eps": 0.1}, "optax_with_loss"),
    Case("polyak_sgd, plus", o.PolyakSGD(lower_bound=2.0, variant="sps+"), OPTAX, "polyak_sgd",
         {"f_min": 2.0, "variant": "sps+"}, "optax_with_loss"),
    Case("mechanic", o.Mechanic(o.Adam(0.01), s_init=0.1), OPTAX, "contrib.mechanize",
         {"learning_rate": 0.01, "s_init": 0.1}, "mechanic", inputs="even"),
    # timm
    Case("adamw, cautious", o.AdamW(0.01, cautious=True), TIMM, "adamw.AdamWLegacy", {"lr": 0.01, "caution": True}),
    Case("lion, cautious", o.Lion(0.01, cautious=True), TIMM, "lion.Lion", {"lr": 0.01, "caution": True}),
    Case("nadam, single", o.NAdam(0.01, variant="single", weight_decay=0.05, decay="before"), TIMM, "nadamw.NAdamW",
         {"lr": 0.01, "weight_decay": 0.05}),
    Case("laprop", o.LaProp(0.01, weight_decay=0.05), TIMM, "laprop.LaProp", {"lr": 0.01, "weight_decay": 0.05},
         float64=1e-7, why="timm corrects the bias in float32"),
    Case("mars", o.MARS(0.01, weight_decay=0.05), TIMM, "mars.Mars",
         {"lr": 0.01, "betas": (0.95, 0.99), "betas_1d": (0.9, 0.95), "weight_decay": 0.05}, inputs="late",
         why="after a first gradient of zero timm has no first step of its own"),
    Case("lars", o.LARS(0.01, weight_decay=0.05), TIMM, "lars.Lars",
         {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.05, "always_adapt": True}),
    Case("lars, other", o.LARS(0.01, momentum=0.5, nesterov=True, trust_coefficient=0.1, trust_clip=True), TIMM,
         "lars.Lars",
         {"lr": 0.01, "momentum": 0.5, "nesterov": True, "trust_coeff": 0.1, "trust_clip": True, "always_adapt": True}),
    Case("lamb, timm", o.LAMB(0.01, weight_decay=0.05, trust_clip=True), TIMM, "lamb.Lamb",
         {"lr": 0.01, "weight_decay": 0.05, "trust_clip": True, "max_grad_norm": None}),
    # torch_optimizer
    Case("acc_sgd", o.AccSGD(0.01, weight_decay=0.05), TORCH_OPTIMIZER, "AccSGD", {"lr": 0.01, "weight_decay": 0.05}),
    Case("adamod", o.AdaMod(0.01, weight_decay=0.05), TORCH_OPTIMIZER, "AdaMod", {"lr": 0.01, "weight_decay": 0.05}),
    Case("adamp", o.AdamP(0.01, weight_decay=0.05), TORCH_OPTIMIZER, "AdamP", {"lr": 0.01, "weight_decay": 0.05},
         shapes=TENSORS),
    Case("adamp, other", o.AdamP(0.01, nesterov=True, delta=10.0, weight_decay=0.05), TORCH_OPTIMIZER, "AdamP",
         {"lr": 0.01, "nesterov": True, "delta": 10.0, "weight_decay": 0.05}, shapes=TENSORS),
    Case("aggmo", o.AggMo(1e-3, weight_decay=0.05), TORCH_OPTIMIZER, "AggMo", {"lr": 1e-3, "weight_decay": 0.05}),
    Case("diffgrad", o.DiffGrad(0.01, weight_decay=0.05), TORCH_OPTIMIZER, "DiffGrad",
         {"lr": 0.01, "weight_decay": 0.05}),
    Case("madgrad", o.MADGRAD(0.01, weight_decay=0.05), TORCH_OPTIMIZER, "MADGRAD", {"lr": 0.01, "weight_decay": 0.05}),
    Case("yogi", o.Yogi(0.01, weight_decay=0.05, decay="gradient"), TORCH_OPTIMIZER, "Yogi",
         {"lr": 0.01, "weight_decay": 0.05}),
    Case("lamb, not corrected", o.LAMB(0.01, weight_decay=0.05, bias_correction=False, max_norm=10.0), TORCH_OPTIMIZER,
         "Lamb", {"lr": 0.01, "weight_decay": 0.05}),
    Case("lamb, pytorch-lamb", o.LAMB(0.01, weight_decay=0.05, bias_correction=False, max_norm=10.0), PYTORCH_LAMB,
         "Lamb", {"lr": 0.01, "weight_decay": 0.05}),
    # pytorch_optimizer
    Case("adahessian", o.AdaHessian(0.01, eps=1e-3, every=3, weight_decay=0.05), PYTORCH_OPTIMIZER, "AdaHessian",
         {"lr": 0.01, "eps": 1e-3, "update_period": 3, "weight_decay": 0.05}, "hessian"),
    Case("adan", o.Adan(0.01, weight_decay=0.05), PYTORCH_OPTIMIZER, "Adan", {"lr": 0.01, "weight_decay": 0.05}),
    Case("adan, decoupled", o.Adan(0.01, weight_decay=0.05, decay="before"), PYTORCH_OPTIMIZER, "Adan",
         {"lr": 0.01, "weight_decay": 0.05, "weight_decouple": True}),
    Case("adanorm", o.AdaNorm(0.01, eps=0.0, weight_decay=0.05), PYTORCH_OPTIMIZER, "AdaNorm",
         {"lr": 0.01, "eps": 0.0, "weight_decay": 0.05}, inputs="even", float64=1e-9,
         why=SMALL_ROOT + ", and eps elsewhere"),
    Case("ademamix", o.AdEMAMix(0.01, weight_decay=0.05), PYTORCH_OPTIMIZER, "AdEMAMix",
         {"lr": 0.01, "weight_decay": 0.05, "weight_decouple": True}),
    Case("ademamix, warmup", o.AdEMAMix(0.01, t_alpha_beta3=10.0), PYTORCH_OPTIMIZER, "AdEMAMix",
         {"lr": 0.01, "t_alpha_beta3": 10.0}),
    Case("fadam", o.FAdam(0.01), PYTORCH_OPTIMIZER, "FAdam",
         {"lr": 0.01, "momentum_dtype": "torch.float64", "fim_dtype": "torch.float64"}),
    Case("fromage", o.Fromage(0.01), PYTORCH_OPTIMIZER, "Fromage", {"lr": 0.01}),
    Case("grams", o.Grams(0.01, weight_decay=0.05), PYTORCH_OPTIMIZER, "Grams", {"lr": 0.01, "weight_decay": 0.05}),
    Case("lookahead", o.Lookahead(o.SGD(0.01, momentum=0.9), k=5, alpha=0.3), PYTORCH_OPTIMIZER, "Lookahead",
         {"lr": 0.01, "momentum": 0.9, "k": 5, "alpha": 0.3}, "lookahead"),
    Case("lora_rite", o.LoRARITE(0.01, skip_above=2.5, weight_decay=0.05), PYTORCH_OPTIMIZER, "LoRARite",
         {"lr": 0.01, "update_skipping": 2.5, "weight_decay": 0.05}, "beside_identity", MATRICES, "even"),
    Case("novograd", o.NovoGrad(0.01, weight_decay=0.05), PYTORCH_OPTIMIZER, "NovoGrad",
         {"lr": 0.01, "weight_decay": 0.05}),
    Case("novograd, averaged", o.NovoGrad(0.01, grad_averaging=True), PYTORCH_OPTIMIZER, "NovoGrad",
         {"lr": 0.01, "grad_averaging": True}),
    Case("padam", o.PAdam(0.01, weight_decay=0.05), PYTORCH_OPTIMIZER, "PAdam", {"lr": 0.01, "weight_decay": 0.05}),
    Case("pid", o.PID(1e-3, momentum=0.6, dampening=0.3, weight_decay=0.05), PYTORCH_OPTIMIZER, "PID",
         {"lr": 1e-3, "momentum": 0.6, "dampening": 0.3, "weight_decay": 0.05}),
    Case("qhadam", o.QHAdam(0.01, nu2=0.9, weight_decay=0.05), PYTORCH_OPTIMIZER, "QHAdam",
         {"lr": 0.01, "betas": (0.995, 0.999), "nus": (0.7, 0.9), "weight_decay": 0.05, "weight_decouple": True},
         float64=1e-8, why="it keeps the weights of the averages in float32"),
    Case("qhm", o.QHM(0.01, weight_decay=0.05), PYTORCH_OPTIMIZER, "QHM",
         {"lr": 0.01, "momentum": 0.999, "nu": 0.7, "weight_decay": 0.05, "weight_decouple": True}),
    Case("ranger", o.Ranger(0.01, weight_decay=0.05), PYTORCH_OPTIMIZER, "Ranger",
         {"lr": 0.01, "weight_decay": 0.05, "degenerated_to_sgd": True}, shapes=TENSORS),
    Case("sgdp", o.SGDP(0.01, momentum=0.9, weight_decay=0.05), PYTORCH_OPTIMIZER, "SGDP",
         {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.05}, shapes=TENSORS),
    Case("sgdp, other", o.SGDP(0.01, momentum=0.9, nesterov=True, delta=10.0, weight_decay=0.05), TORCH_OPTIMIZER,
         "SGDP", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "delta": 10.0, "weight_decay": 0.05}, shapes=TENSORS),
    Case("sgd_sai", o.SGDSaI(1e-3), PYTORCH_OPTIMIZER, "SGDSaI", {"lr": 1e-3}, shapes=MATRICES),
    Case("sgdw", o.SGDW(0.01, momentum=0.9), PYTORCH_OPTIMIZER, "SGDW",
         {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.01}),
    Case("shampoo", o.Shampoo(0.01), PYTORCH_OPTIMIZER, "Shampoo", {"lr": 0.01}, shapes=((4, 4), (5,), (2, 3, 4)),
         inputs="even", float32=1e-4, why="roots amplify rounding"),
    Case("shampoo, momentum", o.Shampoo(0.01, momentum=0.6, eps=1e-3), PYTORCH_OPTIMIZER, "Shampoo",
         {"lr": 0.01, "momentum": 0.6, "matrix_eps": 1e-3}, shapes=((4, 4), (5,), (2, 3, 4)), inputs="even",
         float32=1e-4, why="roots amplify rounding"),
    Case("signsgd", o.SignSGD(0.01, weight_decay=0.1), PYTORCH_OPTIMIZER, "SignSGD", {"lr": 0.01, "weight_decay": 0.1}),
    Case("sm3", o.SM3(0.01, momentum=0.9), PYTORCH_OPTIMIZER, "SM3", {"lr": 0.01, "momentum": 0.9}, shapes=TENSORS),
    Case("sm3, averaged", o.SM3(0.01, beta=0.8), PYTORCH_OPTIMIZER, "SM3", {"lr": 0.01, "beta": 0.8}, shapes=TENSORS),
    Case("soap", o.SOAP(0.01), PYTORCH_OPTIMIZER, "SOAP", {"lr": 0.01}, shapes=SQUARE, inputs="even", float64=1e-7,
         float32=1e-3, why="it factors in float32, and its first basis are eigenvectors"),
    Case("sophia_h", o.SophiaH(0.01, every=3, weight_decay=0.05), PYTORCH_OPTIMIZER, "SophiaH",
         {"lr": 0.01, "update_period": 3, "weight_decay": 0.05}, "hessian"),
    Case("sophia_h, clipped less", o.SophiaH(0.01, p=3.0, eps=0.1, every=3), PYTORCH_OPTIMIZER, "SophiaH",
         {"lr": 0.01, "p": 3.0, "eps": 0.1, "update_period": 3}, "hessian"),
    Case("stable_adamw", o.StableAdamW(0.01), PYTORCH_OPTIMIZER, "StableAdamW", {"lr": 0.01, "kahan_sum": False}),
    Case("swats", o.SWATS(0.01, eps=0.1, tolerance=0.1), PYTORCH_OPTIMIZER, "SWATS", {"lr": 0.01, "eps": 0.1},
         inputs="even", float64=1e-10, why=SMALL_ROOT),
    Case("tiger", o.Tiger(0.01), PYTORCH_OPTIMIZER, "Tiger", {"lr": 0.01}),
    Case("yogi, decoupled", o.Yogi(0.01, weight_decay=0.05), PYTORCH_OPTIMIZER, "Yogi",
         {"lr": 0.01, "weight_decay": 0.05}),
    Case("normuon", o.NorMuon(0.02, weight_decay=0.05), PYTORCH_OPTIMIZER, "NorMuon",
         {"lr": 0.02, "weight_decay": 0.05}, "muon_without_bfloat16", MATRICES, "even", float32=1e-4,
         why="the iteration amplifies rounding"),
    Case("adamuon", o.AdaMuon(0.02, weight_decay=0.05), PYTORCH_OPTIMIZER, "AdaMuon",
         {"lr": 0.02, "weight_decay": 0.05}, "muon_without_bfloat16", MATRICES, "even", float32=1e-4,
         why="the iteration amplifies rounding"),
    Case("spam", o.SPAM(0.01, threshold=2.0, update_proj_gap=60, warmup_steps=10, weight_decay=0.05), PYTORCH_OPTIMIZER,
         "SPAM", {"lr": 0.01, "threshold": 2, "update_proj_gap": 60, "warmup_epoch": 10, "weight_decay": 0.05}),
    Case("stable_spam", o.StableSPAM(0.01, update_proj_gap=60, weight_decay=0.05), PYTORCH_OPTIMIZER, "StableSPAM",
         {"lr": 0.01, "update_proj_gap": 60, "weight_decay": 0.05}),
]
# fmt: on

# Both factors of an adapter: the columns of A, and those of B's transpose.
PAIR = Case(
    "lora_rite, pair",
    o.LoRARITE(0.01, max_norm=0.5, skip_above=0.0, weight_decay=0.05),
    PYTORCH_OPTIMIZER,
    "LoRARite",
    {"lr": 0.01, "clip_unmagnified_grad": 0.5, "update_skipping": 0.0, "weight_decay": 0.05},
    "adapter",
    ((3, 11),),
    "even",
)
# Registered rules without a row, and why.
NO_REFERENCE = {
    "adafisher": "no package",
    "amacp": "our own reading of an abstract",
    "bge_adam": "no package",
    "dion": "no package; the authors' repository is not one",
    "eva": "no package",
    "fista": "no package",
    "genie": "no package",
    "hn_adam": "no package",
    "micro_adam": "its package needs a GPU",
    "sofo": "no package",
}


def key(case: Case, shape: tuple[int, ...]) -> str:
    """The name of what a case is run on."""
    return f"{case.inputs} {'x'.join(map(str, shape))}"
