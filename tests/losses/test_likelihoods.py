from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from edgeopt.errors import ConfigurationError
from edgeopt.losses import KLDivergence, PoissonNLL

seeds = st.integers(0, 2**32 - 1)
reductions = st.sampled_from(["mean", "sum"])


@given(seed=seeds, log_input=st.booleans(), full=st.booleans(), reduction=reductions)
def test_poisson_equals_torch(assert_equals_torch, seed, log_input, full, reduction):
    rng = np.random.default_rng(seed)
    prediction = rng.normal(size=(4, 3)) if log_input else rng.uniform(0, 5, (4, 3))
    counts = rng.poisson(2.0, (4, 3)).astype(np.float64)
    reference = partial(functional.poisson_nll_loss, log_input=log_input, full=full, reduction=reduction)
    assert_equals_torch(PoissonNLL(log_input, full, reduction=reduction), reference, prediction, counts)


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides:UserWarning")  # what torch says of its own default
@given(
    seed=seeds, log_target=st.booleans(), reduction=st.sampled_from(["mean", "sum", "batchmean"]), zeros=st.booleans()
)
def test_divergence_equals_torch(assert_equals_torch, seed, log_target, reduction, zeros):
    rng = np.random.default_rng(seed)
    prediction = np.log(rng.dirichlet(np.ones(4), (5, 2)))
    target = rng.dirichlet(np.ones(4), (5, 2))
    if zeros and not log_target:
        target[rng.random(target.shape) < 0.3] = 0.0
    loss = {
        "mean": KLDivergence(log_target, "elements"),
        "sum": KLDivergence(log_target, reduction="sum"),
        "batchmean": KLDivergence(log_target),
    }[reduction]
    reference = partial(functional.kl_div, log_target=log_target, reduction=reduction)
    assert_equals_torch(loss, reference, prediction, np.log(target) if log_target else target)


def test_divergence_from_impossible_events_that_do_not_happen_is_finite(xp):
    prediction, target = xp.asarray(np.array([[-np.inf, 0.0]])), xp.asarray(np.array([[0.0, 1.0]]))
    total, _ = KLDivergence().terms(xp, prediction, target)
    assert float(total) == 0.0


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigurationError, match="mean_over"):
        KLDivergence(mean_over="batch")  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ConfigurationError, match="eps"):
        PoissonNLL(eps=0.0)
