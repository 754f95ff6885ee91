"""Problems of two levels whose answers are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgeopt.bilevel import Upper


class Quadratic:
    """g = ½ yᵀA y - yᵀ(B x + c),  f = ½‖y - t‖² + ½ρ‖x‖²; everything about it has a closed form."""

    def __init__(self, size: int, unknowns: int, seed: int = 0, *, condition: float = 10.0) -> None:
        rng = np.random.default_rng(seed)
        basis, _ = np.linalg.qr(rng.standard_normal((size, size)))
        self.a = basis @ np.diag(np.linspace(1.0, condition, size)) @ basis.T
        self.b = rng.standard_normal((size, unknowns))
        self.c, self.t = rng.standard_normal(size), rng.standard_normal(size)
        self.rho = 0.5
        self.x0, self.y0 = {"x": rng.standard_normal(unknowns)}, {"y": rng.standard_normal(size)}

    def lower_gradient(self, x: Any, y: Any, data: Any) -> Any:
        return {"y": self.a @ y["y"] - self.b @ x["x"] - self.c + data.get("noise", 0.0)}

    def hessian_vector(self, x: Any, y: Any, vector: Any, data: Any) -> Any:
        return {"y": self.a @ vector["y"]}

    def cross_vector(self, x: Any, y: Any, vector: Any, data: Any) -> Any:
        return {"x": -self.b.T @ vector["y"]}

    def upper(self, x: Any, y: Any, data: Any) -> Upper:
        to_y = y["y"] - self.t + data.get("noise", 0.0)
        loss = 0.5 * float((y["y"] - self.t) @ (y["y"] - self.t) + self.rho * x["x"] @ x["x"])
        return Upper(loss, {"x": self.rho * x["x"]}, {"y": to_y})

    def lower_solution(self, x: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.a, self.b @ x + self.c)

    def hyper_gradient(self, x: np.ndarray) -> np.ndarray:
        v = np.linalg.solve(self.a, self.lower_solution(x) - self.t)
        return self.rho * x + self.b.T @ v

    def solution(self) -> np.ndarray:
        inverse = np.linalg.inv(self.a)
        matrix = self.rho * np.eye(self.b.shape[1]) + self.b.T @ inverse @ inverse @ self.b
        return np.linalg.solve(matrix, self.b.T @ inverse @ (self.t - inverse @ self.c))


@pytest.fixture
def quadratic() -> Callable[..., Quadratic]:
    return Quadratic


class Synthetic:
    """The paper's synthetic problem, in fewer dimensions: the Hessian of its lower level moves with x and y.

    f = 0.1 cos(xᵀ D y) + ½‖E x - y‖²,  g = h Σ sin(x_i + y_i) + log Σ exp(x_i y_i) + ½ yᵀ(F + G) y.
    """

    def __init__(self, size: int = 30, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        basis, _ = np.linalg.qr(rng.standard_normal((size, size)))
        self.d, self.e = 10 * (rng.random(size) - 0.5), rng.random(size) + 0.1
        self.f, self.h = 0.5 * rng.random(size), 0.5
        self.g = basis @ np.diag(np.linspace(1, 50, size)) @ basis.T
        self.x0, self.y0 = {"x": rng.standard_normal(size)}, {"y": rng.standard_normal(size)}

    @staticmethod
    def share(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        powers = np.exp(x * y)
        return powers / powers.sum()

    def lower_gradient(self, x: Any, y: Any, data: Any) -> Any:
        x, y = x["x"], y["y"]
        return {"y": self.h * np.cos(x + y) + x * self.share(x, y) + self.f * y + self.g @ y}

    def hessian_vector(self, x: Any, y: Any, vector: Any, data: Any) -> Any:
        x, y, v = x["x"], y["y"], vector["y"]
        p = self.share(x, y)
        curved = -self.h * np.sin(x + y) * v + x * x * p * v - (x * p) @ v * (x * p)
        return {"y": curved + self.f * v + self.g @ v}

    def cross_vector(self, x: Any, y: Any, vector: Any, data: Any) -> Any:
        x, y, v = x["x"], y["y"], vector["y"]
        p = self.share(x, y)
        return {"x": -self.h * np.sin(x + y) * v + (1 + x * y) * p * v - (x * p) @ v * (y * p)}

    def upper(self, x: Any, y: Any, data: Any) -> Upper:
        x, y = x["x"], y["y"]
        angle, left = x @ (self.d * y), self.e * x - y
        loss = 0.1 * np.cos(angle) + 0.5 * left @ left
        wave = -0.1 * np.sin(angle)
        return Upper(float(loss), {"x": wave * self.d * y + self.e * left}, {"y": wave * self.d * x - left})


@pytest.fixture
def synthetic() -> Synthetic:
    return Synthetic()
