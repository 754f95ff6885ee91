"""Calls in the habits of other libraries."""

from __future__ import annotations

import re

import numpy as np
import pytest

from edgeopt_runtime import BatchError, ForeignBundleError, ProviderError, TrainingSession, read_bundle
from edgeopt_runtime.calls import answered, did_you_mean

CPU = "CPUExecutionProvider"


def test_arrays_one_by_one_are_a_batch(contents, make_batches):
    x, y = make_batches(4)[0].values()
    expected, actual = TrainingSession(contents), TrainingSession(contents)
    assert actual.step(x, y) == expected.step((x, y))
    assert actual.accumulate(x, y) == expected.accumulate((x, y))
    assert actual.evaluate(x, y) == expected.evaluate((x, y))


@pytest.mark.parametrize("providers", [CPU, [CPU], (CPU,), (CPU, {}), [(CPU, {})], None])
def test_one_provider_needs_no_list(bundle_path, providers):
    assert TrainingSession.load(bundle_path, providers=providers)._engine._options.cpu_only


@pytest.mark.parametrize("providers", [3, [3], {"name": CPU}, [(CPU,)], [None]])
def test_what_is_no_provider_is_refused(bundle_path, providers):
    with pytest.raises(ProviderError, match=re.escape(f'`providers=["{CPU}"]`')):
        TrainingSession.load(bundle_path, providers=providers)


@pytest.mark.parametrize("threads", ["4", 2.0, True, 0])
def test_threads_are_a_whole_number(bundle_path, threads):
    with pytest.raises(ProviderError, match="`threads` must be at least 1"):
        TrainingSession.load(bundle_path, threads=threads)


def test_a_session_takes_a_path_and_load_takes_contents(bundle_path):
    contents = read_bundle(bundle_path)
    sessions = TrainingSession(bundle_path), TrainingSession(str(bundle_path)), TrainingSession.load(contents)
    for session in sessions:
        np.testing.assert_equal(session.state(), TrainingSession.load(bundle_path).state())
    with pytest.raises(ForeignBundleError, match=r"not a dict; `edgeopt.export` makes a bundle"):
        TrainingSession({})  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train", "there are no modes"),
        ("zero_grad", "`step` does all of it"),
        ("state_dict", r"`parameters\(\)` and `buffers\(\)`"),
        ("to", "the device is chosen once"),
        ("compile", "loss and optimizer are in the bundle"),
        ("anything", r"^TrainingSession has no attribute 'anything'\.$"),
    ],
)
def test_names_of_other_libraries_are_answered(session, name, message):
    assert not hasattr(session, name)
    with pytest.raises(AttributeError, match=message):
        getattr(session, name)


X = np.zeros((8, 3), np.float32)


@pytest.mark.parametrize(
    ("args", "settings", "message"),
    [
        ((X, X), {}, "takes batches, not a whole data set"),
        ((X,), {"epochs": 3}, "takes batches, not a whole data set"),
        (((X, X),), {}, "takes batches, not a whole data set"),
        (({"x": X},), {}, "takes batches, not a whole data set"),
        (([(X, X)],), {"batch_size": 32}, "no argument 'batch_size': cut the data into batches"),
        ((), {"x": X, "y": X}, "no argument 'x': cut the data into batches"),
        (([(X, X)],), {"validation_data": (X, X)}, "no argument 'validation_data': give evaluate_on="),
        (([(X, X)],), {"num_epochs": 3}, "no argument 'num_epochs': give epochs="),
        (([(X, X)],), {"epoch": 3}, "no argument 'epoch'; did you mean 'epochs'"),
        ((), {}, r"needs batches=\[\(x, y\), ...\]"),
    ],
)
def test_a_fit_of_other_libraries_is_refused_in_a_line(session, args, settings, message):
    with pytest.raises(BatchError, match=message) as caught:
        session.fit(*args, **settings)
    assert "\n" not in str(caught.value)


def test_arguments_given_twice_or_by_place():
    @answered(BatchError, {}, needed={"batch": "x", "rate": "0.1"})
    def train(batch, *, rate):
        return batch, rate

    assert train(1, rate=2) == (1, 2)
    for args, settings in (((1, 2), {}), ((1,), {"batch": 1, "rate": 1})):
        with pytest.raises(BatchError, match=r"train takes batch by place, and all else by name: rate=0.1"):
            train(*args, **settings)
    with pytest.raises(BatchError, match=r"train needs rate=0.1"):
        train(1)  # type: ignore[call-arg]  # the mistake under test


def test_only_what_is_close_is_meant():
    assert did_you_mean("epoch", ["epochs", "batches"]) == "; did you mean 'epochs'?"
    assert did_you_mean("unrelated", ["epochs", "batches"]) == "."
