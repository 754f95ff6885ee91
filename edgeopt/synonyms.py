"""What other frameworks call the settings of components; only for the advice in messages."""

from __future__ import annotations

__all__ = ["NOT_HERE", "SYNONYMS"]

#: By the name here: what torch, optax, Keras, transformers, papers' code and earlier versions call it.
_CALLED = {
    "lr": "learning_rate init_value initial_learning_rate initial_lr max_lr peak_value peak_lr base_lr lr_max eta_max "
    "eta value warmup_target",
    "lr_multiplier": "lr lr_scale lr_mult",
    # moving averages
    "beta1": "b1 beta_1 adam_beta1 momentum mu beta",
    "beta2": "b2 beta_2 adam_beta2",
    "beta3": "b3 beta_3",
    "momentum": "beta1 beta b1 mu",
    "beta": "beta1 momentum decay ema_decay ema_momentum mu b1",
    "alpha": "rho decay decay_rate slow_step_size la_alpha",
    "rho": "alpha decay decay_rate",
    "eps": "epsilon adam_epsilon eps_root epsilon_root",
    "eps1": "epsilon_1",
    "eps2": "epsilon_2",
    "beta2_decay": "decay_rate",
    "d": "clip_threshold clipping_threshold",
    # weight decay
    "weight_decay": "wd l2 l2_penalty weight_decay_rate decay",
    "decay": "decoupled_weight_decay weight_decouple decoupled",
    # lengths, in updates
    "total_steps": "total num_training_steps max_steps t_total num_steps total_iters T_max max_iters max_iter steps "
    "decay_steps transition_steps iterations",
    "total_iters": "total total_steps num_training_steps max_steps T_max max_iters transition_steps decay_steps steps",
    "warmup_steps": "warmup num_warmup_steps warmup_iters warmup_epochs warmup_epoch warmup_init_steps",
    "stable_steps": "stable num_stable_steps",
    "decay_rate": "gamma decay",
    "decay_steps": "num_decay_steps transition_steps every step_size decay",
    "step_size": "size every decay_steps transition_steps",
    "T_0": "period first_decay_steps t_0 T0 cycle_length T_max total_steps",
    "T_mult": "multiplier t_mul t_mult cycle_mult",
    "num_cycles": "cycles n_cycles",
    "step_size_up": "up step_size",
    "step_size_down": "down",
    "milestones": "boundaries steps step_values boundaries_and_scales",
    "factors": "values scales",
    # where rates begin and end
    "gamma": "decay_rate factor",
    "min_lr_ratio": "final min_lr_rate min_ratio alpha lr_end end_learning_rate end_value min_lr lr_min",
    "eta_min": "final min_lr lr_min end_value alpha",
    "base_lr": "low min_lr lr_min eta_min",
    "start_factor": "start begin",
    "end_factor": "end final min_lr_ratio",
    # one cycle
    "pct_start": "rise pct warmup_ratio warmup_pct",
    "div_factor": "div div_start",
    "final_div_factor": "final_div div_final",
    "anneal_strategy": "anneal annealing",
    "three_phase": "three_phases",
    # the rest of the schedules
    "decay_type": "shape kind",
    "d_model": "width dim model_size hidden_size",
    "schedules": "schedulers parts",
    # how often, and how large
    "k": "every sync_period la_steps sync_every",
    "update_proj_gap": "every update_gap T",
    "precondition_frequency": "every update_freq preconditioning_compute_steps",
    "every": "update_freq update_period update_each preconditioning_compute_steps swa_freq k",
    "max_precond_dim": "max_size",
    "max_size": "max_precond_dim max_preconditioner_dim",
    "adjust_lr_fn": "scale",
    "scale_type": "scaling",
    "start": "swa_start average_start",
    # around other rules, and groups
    "inner": "optimizer base_optimizer inner_optimizer tx",
    "default": "optimizer rule",
    "parameters": "params names pattern patterns",
    # clipping
    "max_norm": "max_grad_norm clipnorm global_clipnorm clip_norm norm clip",
    "clip_value": "max_value clipvalue max_delta",
    # losses and metrics
    "label_smoothing": "smoothing",
    "weight": "class_weight class_weights weights",
    "ignore_index": "ignore_class ignore_label padding_idx",
    "class_axis": "axis dim",
    "delta": "beta threshold",
}


def _inverted() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for here, words in _CALLED.items():
        for word in words.split():
            found[word] = (*found.get(word, ()), here)
    return found


#: By the name elsewhere: the names here, of which the first that a class has is meant.
SYNONYMS = _inverted()

#: Settings that have no counterpart, and why.
NOT_HERE: dict[str, str] = {
    "last_epoch": "a bundle counts its own updates, and goes on from there",
    "verbose": "nothing is printed",
    **dict.fromkeys(
        ("foreach", "fused", "capturable", "differentiable"), "there is one way to compute an update; leave it out"
    ),
    "params": "parameters are chosen by export(trainable=...)",
    "name": "components are called by their class",
    "from_logits": "losses take logits; leave it out, and end the model before its softmax or sigmoid",
    "size_average": "give reduction='mean' or reduction='sum'",
    "cycle_momentum": "a schedule changes the rate alone; leave it out",
    **dict.fromkeys(("steps_per_epoch", "epochs"), "lengths count updates: give epochs * steps_per_epoch"),
    "norm_type": "the norm is the Euclidean one; leave it out",
    "use_ema": "wrap the rule: Averaged(rule, mode='ema')",
    **dict.fromkeys(("mask", "weight_decay_mask"), "parameters that differ are given as Group(..., weight_decay=...)"),
}
