"""Models that draw random numbers in evaluation: a VAE, Monte Carlo dropout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
import torch
from torch import nn

import edgeopt
from edgeopt.losses import MSE
from edgeopt.optimizers import SGD, Lookahead
from edgeopt_runtime import TrainingSession


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(3, 4), nn.Linear(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, deviation = self.encoder(x).chunk(2, -1)
        return self.decoder(mean + torch.randn_like(mean) * torch.exp(0.5 * deviation))


class MonteCarlo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.linear(x), 0.25, training=True)


NOISY = """
<ir_version: 8, opset_import: ["" : 17]>
model (float[n, 3] x) => (float[n, 3] y) <float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> {
    h = MatMul(x, w)
    r = RandomNormalLike<scale = 2.0>(h)
    y = Add(h, r)
}
"""
SETTINGS: dict[str, Any] = {"loss": MSE(), "optimizer": SGD(0.01)}


@pytest.fixture(scope="module")
def noisy() -> edgeopt.Bundle:
    return edgeopt.export(onnx.parser.parse_model(NOISY), **SETTINGS)


def ones(rows: int) -> np.ndarray:
    return np.ones((rows, 3), np.float32)


@pytest.mark.parametrize("model", [Vae, MonteCarlo])
def test_modules_are_saved_and_predict_anew_each_time(model: type[nn.Module], tmp_path: Path) -> None:
    edgeopt.export(model(), torch.zeros(2, 3), check=False, **SETTINGS).save(tmp_path / "model.edgeopt")
    session: Any = TrainingSession.load(tmp_path / "model.edgeopt")
    before, x = session.state(), ones(20)
    first, second = session.predict(x), session.predict(x)
    assert not np.array_equal(first, second)
    assert session.evaluate((x, x)) != session.evaluate((x, x))
    changed = {name for name, value in session.state().items() if not np.array_equal(value, before[name])}
    assert changed == {"random.draws"}
    session.reset_seed(0)
    np.testing.assert_array_equal(session.predict(x), first)
    session.save(tmp_path / "later.edgeopt")
    np.testing.assert_array_equal(TrainingSession.load(tmp_path / "later.edgeopt").predict(x), second)
    session.step((x, x))


def test_dropout_keeps_its_share_and_the_mean() -> None:
    module = MonteCarlo()
    nn.init.zeros_(module.linear.weight)
    nn.init.ones_(module.linear.bias)
    session: Any = edgeopt.export(module, torch.zeros(2, 3), check=False, **SETTINGS).session()
    drawn = np.concatenate([session.predict(ones(4000)) for _ in range(5)])
    np.testing.assert_allclose(np.unique(drawn), [0, 4 / 3], rtol=1e-6)
    # 60,000 draws: the standard error of the share is 0.0018.
    assert (drawn == 0).mean() == pytest.approx(0.25, abs=0.008)


def test_noise_has_its_moments_and_is_not_repeated(noisy: edgeopt.Bundle) -> None:
    session: Any = noisy.session()
    calls = np.stack([session.predict(ones(2000)) - [12, 15, 18] for _ in range(8)])
    assert calls.mean() == pytest.approx(0, abs=0.04)
    assert calls.std() == pytest.approx(2, abs=0.03)
    correlations = np.corrcoef(calls.reshape(8, -1)) - np.eye(8)
    assert np.abs(correlations).max() < 0.06


def test_evaluation_over_batches_draws_for_each(noisy: edgeopt.Bundle) -> None:
    session, x = noisy.session(), ones(1000)
    target = x @ np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    loss = session.evaluate([(x, target)] * 4)["loss"]
    assert loss == pytest.approx(4, rel=0.1)
    assert session.state()["random.draws"] == 4


def test_a_plain_file_draws_what_the_session_would(noisy: edgeopt.Bundle, tmp_path: Path) -> None:
    session: Any = noisy.session()
    path = tmp_path / "plain.onnx"
    session.predict(ones(2))
    with pytest.warns(UserWarning, match="draws random numbers in evaluation"):
        session.export_inference(path)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    plain = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [value.name for value in plain.get_outputs()] == ["y"]
    (result,) = plain.run(None, {"x": ones(2)})
    np.testing.assert_allclose(result, session.predict(ones(2)), rtol=1e-6)


def test_steps_without_gradients_compare_under_the_same_noise(noisy: edgeopt.Bundle) -> None:
    session, target = noisy.session(), np.zeros((4, 3), np.float32)
    session.minimize((ones(4), target), method="mezo", max_iter=2, lr=1e-4, seed=0)
    assert session.state()["random.draws"] == 1


def test_another_optimizer_leaves_the_noise(noisy: edgeopt.Bundle) -> None:
    other: Any = noisy.with_optimizer(Lookahead(SGD(0.1))).bundle.session()
    np.testing.assert_array_equal(other.predict(ones(3)), noisy.session().predict(ones(3)))
    assert not np.array_equal(other.predict(ones(3)), other.predict(ones(3)))


def test_models_without_noise_count_nothing() -> None:
    text = NOISY.replace("y = Add(h, r)", "y = Identity(h)")
    bundle = edgeopt.export(onnx.parser.parse_model(text), **SETTINGS)
    for name in ("predict", "evaluate"):
        signature = bundle.manifest.signatures[name]
        assert "state" not in {port.kind for port in signature.outputs}
        assert "random.draws" not in {port.name for port in signature.inputs}
