"""The methods of `minimize` on plain functions, against torch, SciPy and known minima."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import torch
from numpy.typing import NDArray

from edgeopt_runtime import MinimizeError, NonFiniteLossError
from edgeopt_runtime.minimize import METHODS, Method, MinimizeResult
from edgeopt_runtime.minimize.descent import descend
from edgeopt_runtime.minimize.line_search import MOST_TRIALS, Point, strong_wolfe
from edgeopt_runtime.minimize.method import Move
from edgeopt_runtime.minimize.objective import Evaluation
from edgeopt_runtime.minimize.self_scaled import DenseInverse, al_baali, broyden, oren_luenberger, unscaled

START = np.array([-1.2, 1.0, 0.7, -0.4, 1.5])


class Function:
    """An objective in numpy."""

    def __init__(self, start: NDArray, loss: Callable, gradient: Callable, product: Callable) -> None:
        self._start, self._loss, self._gradient, self._product = start, loss, gradient, product
        self.size = start.size
        self.evaluations = self.products = 0
        self.losses: list[float] = []

    def start(self) -> NDArray:
        return self._start

    def evaluate(self, x: NDArray) -> Evaluation:
        self.evaluations += 1
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            self.losses.append(float(self._loss(x)))
            return Evaluation(self.losses[-1], self._gradient(x))

    def hessian_vector(self, x: NDArray, vector: NDArray) -> NDArray:
        self.products += 1
        return self._product(x, vector)


def rosenbrock(start: NDArray = START) -> Function:
    return Function(
        start, scipy.optimize.rosen, scipy.optimize.rosen_der, lambda x, v: scipy.optimize.rosen_hess_prod(x, v)
    )


def quadratic(size: int = 6) -> tuple[Function, NDArray]:
    rng = np.random.default_rng(0)
    root = rng.standard_normal((size, size))
    matrix, linear = root @ root.T + 0.1 * np.eye(size), rng.standard_normal(size)
    function = Function(
        np.zeros(size),
        lambda x: 0.5 * x @ matrix @ x - linear @ x,
        lambda x: matrix @ x - linear,
        lambda x, v: matrix @ v,
    )
    return function, np.linalg.solve(matrix, linear)


def run(objective: Function, settings: Method) -> tuple[NDArray, MinimizeResult]:
    return descend(objective, settings.rule(objective), settings)


SETTINGS: dict[str, dict[str, Any]] = {
    "lbfgs": {"max_iter": 200, "tolerance_change": 0.0},
    "newton_cg": {},
    "ssbfgs": {},
    "ssbroyden": {},
}


@pytest.mark.parametrize("name", METHODS)
def test_the_minimum_of_rosenbrocks_function_is_found(name: str) -> None:
    x, result = run(rosenbrock(np.array([-1.2, 1.0])), METHODS[name](**SETTINGS[name]))
    assert result.reason == "gradient"
    assert np.abs(x - 1).max() <= 1e-8
    assert result.loss <= 1e-16
    assert result.iterations <= 80


@pytest.mark.parametrize("scaling", [None, "al-baali", "oren-luenberger"])
@pytest.mark.parametrize("initial_scaling", [True, False])
def test_every_scaling_of_bfgs_reaches_the_minimum(scaling: str | None, initial_scaling: bool) -> None:
    settings = METHODS["ssbfgs"](scaling=scaling, initial_scaling=initial_scaling)  # type: ignore[call-arg]  # settings of this one
    x, result = run(rosenbrock(), settings)
    assert result.converged
    assert np.abs(x - 1).max() <= 1e-8


@pytest.mark.parametrize("name", METHODS)
def test_a_convex_quadratic_is_minimised(name: str) -> None:
    objective, minimiser = quadratic()
    x, result = run(objective, METHODS[name](**SETTINGS[name]))
    assert result.converged
    assert np.abs(x - minimiser).max() <= 1e-6


def test_one_unknown_is_enough_for_every_method() -> None:
    for name, method in METHODS.items():
        objective = Function(np.array([2.0]), lambda x: x[0] ** 4, lambda x: 4 * x**3, lambda x, v: 12 * x**2 * v)
        x, result = run(objective, method(**SETTINGS[name]))
        assert result.converged, name
        assert abs(x[0]) <= 1e-2, name


def torch_rosenbrock(x: torch.Tensor) -> torch.Tensor:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def torch_lbfgs(
    start: NDArray, dtype: torch.dtype, loss: Callable[..., torch.Tensor] = torch_rosenbrock, **settings: Any
) -> tuple[NDArray, list[float]]:
    x = torch.tensor(start, dtype=dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([x], **settings)
    losses = []

    def closure() -> float:
        optimizer.zero_grad()
        value = loss(x)
        value.backward()
        losses.append(value.item())
        return value.item()

    optimizer.step(closure)
    return x.detach().double().numpy(), losses


@pytest.mark.parametrize("history", [3, 100])
@pytest.mark.parametrize("iterations", [1, 2, 7, 15])
@pytest.mark.parametrize(("search", "lr"), [("strong_wolfe", 1.0), ("strong_wolfe", 0.3), (None, 1e-3)])
def test_lbfgs_takes_the_steps_of_torch(search: str | None, lr: float, iterations: int, history: int) -> None:
    options: dict[str, Any] = {"line_search_fn": search, "lr": lr, "history_size": history}
    x, result = run(rosenbrock(), METHODS["lbfgs"](max_iter=iterations, **options))
    expected, losses = torch_lbfgs(START, torch.float64, max_iter=iterations, **options)
    assert np.abs(x - expected).max() <= 1e-12
    # Without a line search the last point is evaluated too, so that the loss reported is that of the weights kept.
    assert result.evaluations - len(losses) in ((0, 1) if search is None else (0,))


def test_lbfgs_takes_sixty_steps_as_torch_does() -> None:
    # On this function rounding errors do not grow; on Rosenbrock's, one bit in the start is 1e-7 after so many steps.
    scale = np.geomspace(1, 30, 12)
    start = np.linspace(-1, 2, 12)
    objective = Function(
        start, lambda x: (scale * (np.sqrt(1 + x**2))).sum(), lambda x: scale * x / np.sqrt(1 + x**2), lambda x, v: v
    )
    options: dict[str, Any] = {"lr": 1e-2, "line_search_fn": None, "max_iter": 60, "max_eval": 1000}
    x, _ = run(objective, METHODS["lbfgs"](**options))
    expected, _ = torch_lbfgs(
        start, dtype=torch.float64, loss=lambda x: (torch.tensor(scale) * torch.sqrt(1 + x**2)).sum(), **options
    )
    assert np.abs(x - expected).max() <= 1e-12
    assert np.abs(x - start).max() > 0.1


def test_lbfgs_in_float32_stays_close_to_torch() -> None:
    start = START.astype(np.float32)
    objective = Function(
        start,
        scipy.optimize.rosen,
        lambda x: scipy.optimize.rosen_der(x).astype(np.float32),
        scipy.optimize.rosen_hess_prod,
    )
    x, _ = run(objective, METHODS["lbfgs"](max_iter=8))
    expected, _ = torch_lbfgs(start, torch.float32, max_iter=8, line_search_fn="strong_wolfe")
    assert x.dtype == np.float32
    assert np.abs(x - expected).max() <= 1e-4


def test_max_eval_stops_where_torch_stops() -> None:
    x, result = run(rosenbrock(), METHODS["lbfgs"](max_iter=50, max_eval=9))
    expected, losses = torch_lbfgs(START, torch.float64, max_iter=50, max_eval=9, line_search_fn="strong_wolfe")
    assert result.reason == "max_eval"
    assert result.evaluations == len(losses)
    assert np.abs(x - expected).max() <= 1e-12


def test_newton_cg_agrees_with_scipy_on_a_function_that_curves_downwards() -> None:
    def loss(x: NDArray) -> Any:
        return np.sum(x**4 - 2 * x**2 + 0.3 * x) + 0.5 * (x.sum()) ** 2

    def gradient(x: NDArray) -> Any:
        return 4 * x**3 - 4 * x + 0.3 + x.sum()

    def product(x: NDArray, v: NDArray) -> Any:
        return (12 * x**2 - 4) * v + v.sum()

    start = np.array([0.1, 0.2, -0.3, 0.05])
    x, result = run(Function(start, loss, gradient, product), METHODS["newton_cg"]())
    reference = scipy.optimize.minimize(
        loss, x, method="Newton-CG", jac=gradient, hessp=product, options={"xtol": 1e-10}
    )
    assert result.reason == "gradient"
    assert np.abs(x - reference.x).max() <= 1e-6
    assert loss(x) < loss(start)
    assert result.hessian_vector_products >= result.iterations


def test_damping_shortens_a_newton_step() -> None:
    objective, _ = quadratic()
    exact, _ = run(objective, METHODS["newton_cg"](max_iter=1))
    objective, _ = quadratic()
    damped, _ = run(objective, METHODS["newton_cg"](max_iter=1, damping=10.0))  # type: ignore[call-arg]  # settings of this one
    assert np.linalg.norm(damped) < np.linalg.norm(exact)


def moves(count: int, size: int) -> list[Move]:
    """Steps on a quadratic along -H g, H what plain BFGS has by then: enough for every formula."""
    rng = np.random.default_rng(3)
    root = rng.standard_normal((size, size))
    matrix = root @ root.T + np.eye(size)
    x, made = rng.standard_normal(size), []
    rule = DenseInverse(size, unscaled, False, 100)
    for _ in range(count):
        before = matrix @ x
        direction = rule.direction(x, before)
        step = 0.8 * -(before @ direction) / (direction @ matrix @ direction)
        made.append(Move(step, step * direction, before, matrix @ (x + step * direction)))
        rule.learn(made[-1])
        x = x + step * direction
    return made


def test_without_scaling_the_matrix_is_that_of_scipys_bfgs() -> None:
    size = 6
    rule = DenseInverse(size, unscaled, False, 100)
    reference = scipy.optimize.BFGS(init_scale=1)
    reference.initialize(size, "inv_hess")
    for move in moves(8, size):
        rule.learn(move)
        reference.update(move.change, move.after - move.before)
        assert np.abs(rule.inverse - reference.get_matrix()).max() <= 1e-12 * np.abs(rule.inverse).max()


@pytest.mark.parametrize("factors", [unscaled, oren_luenberger, al_baali, broyden])
@pytest.mark.parametrize("initial_scaling", [True, False])
def test_every_update_satisfies_the_secant_equation(factors: Any, initial_scaling: bool) -> None:
    rule = DenseInverse(5, factors, initial_scaling, 100)
    for move in moves(1, 5):
        rule.learn(move)
        assert np.allclose(rule.inverse @ (move.after - move.before), move.change, rtol=1e-10, atol=1e-12)
        assert (np.linalg.eigvalsh(rule.inverse) > 0).all()


def test_the_broyden_factors_are_those_of_the_paper() -> None:
    """The published formulas, written out one after the other."""
    for h, b, size in [(2.0, 0.9, 5), (0.7, 3.0, 4), (1.5, 0.7, 10), (8.0, 0.2, 3)]:
        a = h * b - 1
        c = np.sqrt(abs(a) / (1 + a))
        rho_minus = min(1, h * (1 - c))
        theta_minus, theta_plus = (rho_minus - 1) / a, 1 / rho_minus
        theta = max(theta_minus, min(theta_plus, (1 - b) / b))
        sigma = 1 + a * theta
        sigma_n = abs(sigma) ** (1 / (1 - size))
        rho = min(1, 1 / b)
        tau = min(rho * sigma_n, sigma) if theta <= 0 else rho * min(sigma_n, 1 / theta)
        assert broyden(h, b, size) == pytest.approx((tau, theta), rel=1e-14)


def test_a_step_without_curvature_is_not_learned() -> None:
    rule = DenseInverse(3, oren_luenberger, True, 100)
    rule.learn(Move(1.0, np.ones(3), -np.ones(3), -np.ones(3)))
    assert np.array_equal(rule.inverse, np.eye(3))


def test_a_dense_matrix_beyond_the_limit_is_refused() -> None:
    with pytest.raises(MinimizeError, match=r"200000 trainable parameters need 298.0 GiB.*lbfgs"):
        run(rosenbrock(np.ones(200_000)), METHODS["ssbroyden"]())


def line(loss: Callable[[float], float], slope: Callable[[float], float]) -> Callable[[float], Point]:
    return lambda t: Point(t, loss(t), slope(t), np.array([slope(t)]))


@pytest.mark.parametrize("first", [1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("c2", [0.9, 0.1])
def test_the_step_satisfies_the_strong_wolfe_conditions(first: float, c2: float) -> None:
    # Moré and Thuente, "Line search algorithms with guaranteed sufficient decrease", 1994, equation 5.1.
    phi = line(lambda t: -t / (t**2 + 2), lambda t: (t**2 - 2) / (t**2 + 2) ** 2)
    start = phi(0.0)
    point = strong_wolfe(phi, start, first, 1.0, 1e-4, c2)
    assert point.loss <= start.loss + 1e-4 * point.step * start.slope
    assert abs(point.slope) <= c2 * abs(start.slope)


def test_points_without_a_finite_loss_are_too_high() -> None:
    phi = line(lambda t: (t - 1) ** 2 if t < 2 else np.inf, lambda t: 2 * (t - 1) if t < 2 else np.nan)
    point = strong_wolfe(phi, phi(0.0), 50.0, 1.0, 1e-4, 0.9)
    assert point.step < 2
    assert point.loss < 1


def test_a_line_that_only_rises_gives_the_start() -> None:
    # The slope at the start is wrong on purpose.
    start = Point(0.0, 0.0, -1.0, np.array([-1.0]))
    assert strong_wolfe(line(lambda t: t, lambda t: 1.0), start, 1.0, 1.0, 1e-4, 0.9) is start


def test_a_line_that_falls_for_ever_ends_after_the_last_trial() -> None:
    tried = []

    def phi(t: float) -> Point:
        tried.append(t)
        return Point(t, -t, -1.0, np.array([-1.0]))

    point = strong_wolfe(phi, phi(0.0), 1.0, 1.0, 1e-4, 0.9)
    assert len(tried) == MOST_TRIALS + 2
    assert point.step == max(tried)


def test_a_start_that_is_not_finite_is_an_error() -> None:
    objective = Function(np.ones(2), lambda x: np.nan, lambda x: x, lambda x, v: v)
    with pytest.raises(NonFiniteLossError, match="at the start"):
        run(objective, METHODS["lbfgs"]())


def test_a_fixed_step_that_leaves_the_domain_is_an_error() -> None:
    objective = Function(np.array([1.0]), lambda x: x[0] - np.log(x[0]), lambda x: 1 - 4 / x, lambda x, v: v)
    with pytest.raises(NonFiniteLossError, match="without line search"):
        run(objective, METHODS["lbfgs"](lr=1e6, line_search_fn=None, max_iter=5))


def test_a_line_search_stays_in_the_domain() -> None:
    objective = Function(np.array([3.0]), lambda x: x[0] - np.log(x[0]), lambda x: 1 - 1 / x, lambda x, v: v / x**2)
    x, result = run(objective, METHODS["lbfgs"](lr=20.0, max_eval=100))
    assert result.converged
    assert not np.isfinite(objective.losses).all()
    assert x[0] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lbfgs", {"max_iter": -1}),
        ("lbfgs", {"max_eval": 0}),
        ("lbfgs", {"history_size": 0}),
        ("lbfgs", {"line_search_fn": "armijo"}),
        ("lbfgs", {"tolerance_grad": -1.0}),
        ("lbfgs", {"tolerance_change": float("nan")}),
        ("lbfgs", {"lr": 0.0}),
        ("lbfgs", {"c1": 0.9, "c2": 0.1}),
        ("newton_cg", {"line_search_fn": None}),
        ("newton_cg", {"damping": -1.0}),
        ("newton_cg", {"max_cg": 0}),
        ("ssbfgs", {"scaling": "none"}),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(MinimizeError, match=next(iter(options))):
        METHODS[name](**options)
