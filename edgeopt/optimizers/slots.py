"""What the slots of rules hold, by name: whether they may be kept in few bits, and whether they have a sign.

What is not here stays as it is: copies of parameters, sums that grow by small amounts, rates, factors and bases,
counters.
"""

from __future__ import annotations

__all__ = ["SIGNED", "UNSIGNED"]

#: Means of gradients, and what else is refilled all the time, with both signs.
SIGNED = frozenset(
    {
        *("d_buffer", "exp_avg", "exp_avg_diff", "exp_avg_slow", "grad_avg", "grad_buffer", "hessian", "i_buffer"),
        *("moments", "momentum", "momentum_buffer", "prediction", "prev", "previous_grad"),
        *(f"momentum_buffer_{place}" for place in range(1, 17)),
    }
)

#: Means and sums of squares and magnitudes.
UNSIGNED = frozenset(
    {
        *("acc_delta", "exp_avg_sq", "exp_avg_var", "exp_hessian_diag_sq", "exp_inf", "fim"),
        *("max_exp_avg_sq", "max_exp_avg_var", "square_avg", "sum"),
    }
)
