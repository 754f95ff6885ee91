from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from edgeopt import bilevel
from edgeopt.errors import ConfigurationError, SignatureError
from edgeopt_runtime.errors import NonFiniteLossError


def as_in_the_paper(problem, x, y, *, upper_lr, lower_lr, iterations, lower_steps, m):
    """Algorithms 2 and 4 of arXiv:2404.03331, with full matrices and inverses."""
    v = np.zeros_like(y)
    losses = []
    for k in range(iterations):
        for _ in range(lower_steps):
            y = y - lower_lr * problem.lower_gradient({"x": x}, {"y": y}, {})["y"]

        def times(vector, x=x, y=y):
            return problem.hessian_vector({"x": x}, {"y": y}, {"y": vector}, {})["y"]

        loss, to_x, to_y = problem.upper({"x": x}, {"y": y}, {})
        if k % m == 0:
            base, image = v, times(v)
            q, before, beta = (to_y["y"] - image) / np.linalg.norm(to_y["y"] - image), 0.0, 0.0
            columns, t = [q], np.zeros((0, 0))
        u = times(q) - beta * before
        alpha = q @ u
        t = np.pad(t, (0, 1))
        t[-1, -1] = alpha
        if len(t) > 1:
            t[-1, -2] = t[-2, -1] = beta
        basis = np.stack(columns, axis=1)
        v = base + basis @ np.linalg.inv(t) @ basis.T @ (to_y["y"] - image)
        omega = u - alpha * q
        beta = float(np.linalg.norm(omega))
        before, q = q, omega / beta
        columns.append(q)
        cross = problem.cross_vector({"x": x}, {"y": y}, {"y": v}, {})["x"]
        x = x - upper_lr * (to_x["x"] - cross)
        losses.append(loss)
    return x, y, v, losses


@pytest.mark.parametrize("m", [1, 3, 7])
@pytest.mark.parametrize("kind", ["quadratic", "synthetic"])
def test_iterates_are_those_of_the_paper(kind, m, quadratic, synthetic):
    problem = quadratic(12, 3) if kind == "quadratic" else synthetic
    settings = {"upper_lr": 0.05, "lower_lr": 0.02, "iterations": 21, "lower_steps": 2, "m": m}
    x, y, v, losses = as_in_the_paper(problem, problem.x0["x"], problem.y0["y"], **settings)
    result = bilevel.lancbio(problem, problem.x0, problem.y0, reorthogonalize=False, **settings)
    for found, wanted in ((result.x["x"], x), (result.y["y"], y), (result.v["y"], v)):
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose([record.upper_loss for record in result.history], losses, rtol=1e-9)
    # Where the matrix does not move, orthogonalising again changes nothing but rounding.
    again = bilevel.lancbio(problem, problem.x0, problem.y0, **settings)
    np.testing.assert_allclose(again.x["x"], x, rtol=1e-8 if kind == "quadratic" else 1e-2, atol=1e-10)


@pytest.mark.parametrize("m", [1, 4, 10, 30])
def test_x_converges_to_the_closed_form_and_v_with_it(m, quadratic):
    problem = quadratic(10, 3)
    result = bilevel.lancbio(
        problem, problem.x0, problem.y0, upper_lr=0.05, lower_lr=0.15, lower_steps=5, iterations=5000, m=m,
        tolerance=1e-10,
    )  # fmt: skip
    assert result.reason == "tolerance"
    np.testing.assert_allclose(result.x["x"], problem.solution(), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(result.y["y"], problem.lower_solution(problem.solution()), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(
        result.v["y"], np.linalg.solve(problem.a, result.y["y"] - problem.t), rtol=1e-7, atol=1e-8
    )


def gradient_at(problem, x, y, *, iterations, lower_steps, **settings):
    """The hyper-gradient where the run starts: x stays until the last iteration, which moves it by the gradient."""
    moved = bilevel.lancbio(
        problem, x, y, iterations=iterations, lower_steps=lower_steps,
        upper_lr=lambda k: 1.0 if k == iterations - 1 else 1e-300, **settings,
    )  # fmt: skip
    return {name: x[name] - moved.x[name] for name in x}


def test_the_hyper_gradient_is_exact_once_the_subspace_is_full(quadratic):
    problem = quadratic(8, 3, seed=2)
    found = gradient_at(problem, problem.x0, problem.y0, iterations=8, lower_steps=60, lower_lr=0.15, m=8)
    np.testing.assert_allclose(found["x"], problem.hyper_gradient(problem.x0["x"]), rtol=1e-9)


def test_the_hyper_gradient_agrees_with_differences_of_the_implicit_function(synthetic):
    def implicit(x):
        y = {"y": np.zeros_like(x)}
        for _ in range(20):
            matrix = np.stack([synthetic.hessian_vector({"x": x}, y, {"y": row}, {})["y"] for row in np.eye(x.size)])
            y = {"y": y["y"] - np.linalg.solve(matrix, synthetic.lower_gradient({"x": x}, y, {})["y"])}
        return synthetic.upper({"x": x}, y, {}).loss

    x = synthetic.x0["x"]
    found = gradient_at(synthetic, synthetic.x0, synthetic.y0, iterations=40, lower_steps=40, lower_lr=0.03, m=30)["x"]
    for direction in np.random.default_rng(0).standard_normal((3, x.size)):
        difference = (implicit(x + 1e-5 * direction) - implicit(x - 1e-5 * direction)) / 2e-5
        np.testing.assert_allclose(found @ direction, difference, rtol=1e-6)


def test_a_krylov_space_beats_the_gradient_alone(synthetic):
    """The residual late in a run, against that of the steepest descent that one vector makes."""
    late = {}
    for m in (1, 5):
        result = bilevel.lancbio(
            synthetic, synthetic.x0, synthetic.y0, upper_lr=0.1, lower_lr=0.03, lower_steps=3, iterations=60, m=m
        )
        late[m] = np.mean([record.residual for record in result.history[-20:]])
        first = result.history[0].residual
        assert late[m] < 0.1 * first
    assert late[5] < late[1]


def test_a_later_call_goes_on_where_an_earlier_one_stopped(quadratic):
    problem = quadratic(6, 2)
    settings: dict[str, Any] = {"upper_lr": 0.05, "lower_lr": 0.1, "m": 3}
    whole = bilevel.lancbio(problem, problem.x0, problem.y0, iterations=12, **settings)
    half = bilevel.lancbio(problem, problem.x0, problem.y0, iterations=6, **settings)
    rest = bilevel.lancbio(problem, half.x, half.y, v=half.v, iterations=6, **settings)
    np.testing.assert_allclose(rest.x["x"], whole.x["x"], rtol=1e-12)
    np.testing.assert_allclose(rest.v["y"], whole.v["y"], rtol=1e-12)
    assert len(whole.history) == 12
    assert [record.subspace for record in whole.history[:5]] == [1, 2, 3, 1, 2]


def test_samples_are_drawn_for_each_use_and_noise_averages_out(quadratic):
    problem = quadratic(6, 2)
    rng = np.random.default_rng(0)
    drawn = itertools.count()

    def sample():
        next(drawn)
        return {"noise": 0.1 * rng.standard_normal(6)}

    # Rates that fall let the noise average out.
    result = bilevel.lancbio(
        problem, problem.x0, problem.y0, iterations=1500, lower_steps=2, m=3, lower_data=sample, upper_data=sample,
        upper_lr=lambda k: 0.1 / (1 + 0.02 * k), lower_lr=lambda k: 0.15 / (1 + 0.01 * k),
    )  # fmt: skip
    assert next(drawn) == 1500 * (2 + 1 + 1 + 1)
    np.testing.assert_allclose(result.x["x"], problem.solution(), atol=0.05)


def test_float32_variables_stay_float32_and_small_steps_add_up(quadratic):
    problem = quadratic(5, 2)
    x = {"x": problem.x0["x"].astype(np.float32)}
    y = {"y": problem.y0["y"].astype(np.float32)}
    result = bilevel.lancbio(
        problem, x, y, upper_lr=0.1, lower_lr=0.15, lower_steps=3, iterations=400, m=lambda k: min(1 + k // 10, 5)
    )
    assert result.x["x"].dtype == result.y["y"].dtype == np.float32
    np.testing.assert_allclose(result.x["x"], problem.solution(), rtol=1e-4)
    np.testing.assert_array_equal(x["x"], problem.x0["x"].astype(np.float32))


def test_a_callback_sees_every_iteration_and_can_stop(quadratic):
    problem = quadratic(4, 2)
    seen = []

    def callback(progress):
        seen.append(progress)
        return progress.record.iteration == 3

    result = bilevel.lancbio(problem, problem.x0, problem.y0, upper_lr=0.1, callback=callback)
    assert result.reason == "callback"
    assert [progress.record for progress in seen] == list(result.history)
    np.testing.assert_array_equal(seen[-1].x["x"], result.x["x"])
    none = bilevel.lancbio(problem, problem.x0, problem.y0, upper_lr=0.1, iterations=0)
    assert (none.reason, none.history) == ("iterations", ())
    np.testing.assert_array_equal(none.x["x"], problem.x0["x"])


def test_the_size_of_subspaces_grows_as_in_the_authors_programs():
    sizes = bilevel.growing()
    assert [sizes(k) for k in (0, 49, 50, 100, 150, 200, 250, 300, 9999)] == [1, 1, 2, 3, 4, 6, 8, 10, 10]
    assert bilevel.growing(1, 1.1, 20, 3)(10**6) == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"upper_lr": 0.0}, "upper_lr must be above 0"),
        ({"lower_lr": lambda k: float("nan")}, "lower_lr must be a finite number"),
        ({"iterations": -1}, "iterations must be at least 0"),
        ({"lower_steps": 0}, "lower_steps must be at least 1"),
        ({"m": 0}, "m must be at least 1"),
        ({"tolerance": -1.0}, "tolerance must be at least 0"),
        ({"lower_data": [1]}, "lower_data must be arrays by name"),
    ],
)
def test_settings_without_sense_are_refused(settings, message, quadratic):
    problem = quadratic(3, 2)
    with pytest.raises(ConfigurationError, match=message):
        bilevel.lancbio(problem, problem.x0, problem.y0, **{"upper_lr": 0.1, **settings})


@pytest.mark.parametrize("settings", [{"factor": 1.0}, {"first": 0}, {"every": 0}, {"first": 5, "most": 4}])
def test_sizes_that_do_not_grow_are_refused(settings):
    with pytest.raises(ConfigurationError):
        bilevel.growing(**settings)


def test_arrays_that_do_not_fit_are_refused(quadratic):
    problem = quadratic(3, 2)
    x, y = problem.x0, problem.y0
    with pytest.raises(SignatureError, match="`x` must be arrays by name"):
        bilevel.lancbio(problem, {}, y, upper_lr=0.1)
    with pytest.raises(SignatureError, match="floating-point numbers, but 'x' is int64"):
        bilevel.lancbio(problem, {"x": np.arange(2, dtype=np.int64)}, y, upper_lr=0.1)
    with pytest.raises(SignatureError, match=r"`v` has \['w'\], but `y` has \['y'\]"):
        bilevel.lancbio(problem, x, y, v={"w": y["y"]}, upper_lr=0.1)
    with pytest.raises(SignatureError, match=r"`v` has shape \(2,\) for 'y', but `y` has \(3,\)"):
        bilevel.lancbio(problem, x, y, v={"y": np.zeros(2)}, upper_lr=0.1)
    problem.hessian_vector = lambda x, y, vector, data: {"z": vector["y"]}
    with pytest.raises(SignatureError, match=r"hessian_vector has \['z'\]"):
        bilevel.lancbio(problem, x, y, upper_lr=0.1)


def test_what_is_not_finite_is_refused(quadratic):
    problem = quadratic(3, 2)
    with pytest.raises(NonFiniteLossError, match="is not finite"):
        bilevel.lancbio(problem, problem.x0, problem.y0, upper_lr=0.1, lower_lr=1e3, iterations=400)
    problem.hessian_vector = lambda x, y, vector, data: {"y": np.full(3, np.nan)}
    with pytest.raises(NonFiniteLossError, match="Hessian-vector product of iteration 0"):
        bilevel.lancbio(problem, problem.x0, problem.y0, upper_lr=0.1)


def test_an_upper_loss_that_is_not_finite_is_refused(quadratic):
    problem = quadratic(3, 2)
    upper = problem.upper
    problem.upper = lambda x, y, data: upper(x, y, data)._replace(loss=float("inf"))
    with pytest.raises(NonFiniteLossError, match="upper loss of iteration 0"):
        bilevel.lancbio(problem, problem.x0, problem.y0, upper_lr=0.1)
