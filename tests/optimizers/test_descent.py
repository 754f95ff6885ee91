"""What surrounds the step of a rule: the places of weight decay, caution, and what is left out when it is off."""

from __future__ import annotations

import numpy as np
import pytest

from edgeopt.errors import ConfigurationError
from edgeopt.optimizers import SGD, Adam, AdamW, Lion

RATE, DECAY = 0.1, 0.5
START, GRAD = np.array([2.0, -1.0]), np.array([1.0, 3.0])
PLACES = {
    "gradient": START - RATE * (GRAD + DECAY * START),
    "before": START * (1 - RATE * DECAY) - RATE * GRAD,
    "after": (START - RATE * GRAD) * (1 - RATE * DECAY),
    "proximal": (START - RATE * GRAD) / (1 + RATE * DECAY),
    "cautious": START - RATE * GRAD - RATE * DECAY * np.array([2.0, 0.0]),  # the second element grows by its step
}


@pytest.mark.parametrize(("place", "expected"), PLACES.items())
def test_decay_acts_where_it_is_told(place, expected, train, xp):
    param, _ = train(SGD(RATE, weight_decay=DECAY, decay=place), xp, START, lambda _, i: GRAD, 1)
    np.testing.assert_allclose(param, expected, rtol=1e-15)


def test_an_unknown_place_is_refused():
    with pytest.raises(ConfigurationError, match="decay must be one of gradient, before, after, proximal, cautious"):
        SGD(decay="decoupled")  # type: ignore[arg-type] # wrong on purpose


def test_caution_skips_what_disagrees_and_scales_up_the_rest(train, xp):
    grads = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, -3.0, 0.0, 2.0]])
    param, _ = train(SGD(RATE, momentum=0.5, cautious=True), xp, np.zeros(4), lambda _, i: grads[i], 2)
    # The second buffer is (1.5, -2.5, 0.5, 2.5): the third element has no gradient to agree with.
    second = np.array([1.5, -2.5, 0.0, 2.5]) / 0.75
    np.testing.assert_allclose(param, -RATE * (grads[0] + second), rtol=1e-15)


def test_caution_sees_signs_below_the_smallest_product(train, xp):
    grads = np.array([1e-30, -1e-30], np.float32)
    cautious, _ = train(Lion(RATE, cautious=True), xp, np.zeros(2, np.float32), lambda _, i: grads, 1)
    plain, _ = train(Lion(RATE), xp, np.zeros(2, np.float32), lambda _, i: grads, 1)
    np.testing.assert_array_equal(cautious, plain)


def test_caution_rests_when_everything_disagrees(train, xp):
    grads = np.array([[1.0, 1.0], [-0.1, -0.1]])
    moved, _ = train(SGD(RATE, momentum=0.9, cautious=True), xp, np.zeros(2), lambda _, i: grads[i], 1)
    rested, _ = train(SGD(RATE, momentum=0.9, cautious=True), xp, np.zeros(2), lambda _, i: grads[i], 2)
    np.testing.assert_array_equal(moved, rested)


def test_only_caution_looks_beyond_an_element():
    assert Adam().elementwise
    assert not Adam(cautious=True).elementwise


def test_adam_with_decay_before_the_step_is_adamw():
    adam = Adam(weight_decay=0.01, decay="before")
    assert adam.hyperparameters() == AdamW().hyperparameters()
