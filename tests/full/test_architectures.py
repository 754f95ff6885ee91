"""Architectures of timm, torchvision and transformers, trained for three steps in a bundle and in PyTorch.

Everything is float64, in which both agree to many digits or are different programs. None is one of those in
`tests/architectures`, which compares single gradients. The run ends with a table: how much of the export was its check.

Left out are decoders whose normalisation computes in float32 whatever the model's type (Cohere, Gemma, Mistral, MT5,
OLMo, Qwen3), which agree to 1.5e-7 and no more, and Longformer, which branches on the values of its inputs.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
import timm
import torch
import transformers as hf
from timm.models.efficientvit_mit import LiteMLA
from torch import nn
from torchvision import models

import edgeopt
from edgeopt.losses import MSE, CrossEntropy
from edgeopt.optimizers import SGD, AdamW
from edgeopt_exporters.verification import verify

Tensors = tuple[torch.Tensor, ...]

TOLERANCE = 1e-7
STEPS = 3
# So small that rounding does not grow: deep networks with a BatchNorm everywhere have gradients near 100 at first.
RATE = 1e-3


@dataclass(frozen=True)
class Row:
    """An architecture.

    Attributes:
        build: Makes the module.
        inputs: Makes a batch, another one at each call.
        output: The output that the loss reads; the first by default.
        adam: Whether AdamW trains it, and not SGD. Of gradients that are zero but for noise, as many are in front of a
            BatchNorm or where parts compute in float32, it makes whole steps by dividing through their size.
    """

    build: Callable[[], Any]
    inputs: Callable[[], Tensors]
    output: str | None = None
    adam: bool = False


def images(size: int = 64, batch: int = 4) -> Callable[[], Tensors]:
    return lambda: (torch.randn(batch, 3, size, size),)


def floats(*shape: int) -> Callable[[], Tensors]:
    return lambda: (torch.randn(*shape),)


def tokens(*lengths: int, batch: int = 3) -> Callable[[], Tensors]:
    """Sequences of token numbers that are not padding."""
    return lambda: tuple(torch.randint(3, 64, (batch, length)) for length in lengths or (12,))


class Only(nn.Module):
    """One field of what a model returns, without the caches and hidden states that it returns besides."""

    def __init__(self, model: nn.Module, name: str, *inputs: str) -> None:
        super().__init__()
        self.model, self.name, self.inputs = model, name, inputs

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        named = dict(zip(self.inputs, tensors, strict=False))
        result: torch.Tensor = self.model(*tensors[len(named) :], **named)[self.name]
        return result


# --- timm ---


def of_timm(name: str, size: int = 64, batch: int = 4, output: str | None = None, **settings: Any) -> Row:
    return Row(lambda: timm.create_model(name, num_classes=5, **settings), images(size, batch), output)


class WideAttention(LiteMLA):  # type: ignore[misc]  # timm is not analysed
    """Without the conversions to float32, in which the other computes whatever its input is."""

    def _attn(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        sums = q @ (k.transpose(-1, -2) @ v)
        return sums[..., :-1] / (sums[..., -1:] + self.eps)


def efficientvit() -> Any:
    module = timm.create_model("efficientvit_b0", num_classes=5)
    for part in module.modules():
        if isinstance(part, LiteMLA):
            part.__class__ = WideAttention
    return module


class Distilled(nn.Module):
    """A student of DeiT: a tuple of two heads in training, their mean in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        settings = {"img_size": 32, "depth": 2, "embed_dim": 32, "num_heads": 2}
        self.model = timm.create_model("deit_tiny_distilled_patch16_224", num_classes=5, **settings)
        self.model.set_distilled_training(True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.model(x)


OF_TIMM: dict[str, Row] = {
    "mobileone": of_timm("mobileone_s0"),
    "efficientvit": Row(efficientvit, images()),
    "efficientvit_msra": of_timm("efficientvit_m0"),
    "repvit": of_timm("repvit_m0_9"),
    "ghostnet_v2": of_timm("ghostnetv2_100"),
    "levit": of_timm("levit_128s", img_size=64),
    "edgenext": of_timm("edgenext_xx_small", depths=(1, 1, 2, 1)),
    "fastvit": of_timm("fastvit_t8", layers=(1, 1, 1, 1)),
    "hgnet_v2": of_timm("hgnetv2_b0"),
    "tinynet": of_timm("tinynet_e"),
    "mixnet": of_timm("mixnet_s"),
    "lcnet": of_timm("lcnet_050"),
    "xcit": of_timm("xcit_nano_12_p16_224", depth=2),
    "visformer": of_timm("visformer_tiny", 32, img_size=32, depth=(1, 1, 1)),
    "coat_lite": of_timm("coat_lite_tiny", img_size=64, serial_depths=(1, 1, 1, 1)),
    "resnest": of_timm("resnest14d"),
    "vovnet_ese": of_timm("ese_vovnet19b_slim_dw"),
    "semnasnet": of_timm("semnasnet_050"),
    "pit": of_timm("pit_ti_224", img_size=64, depth=(1, 1, 1)),
    "dla": of_timm("dla46_c"),
    "rexnet": of_timm("rexnet_100"),
    "skresnet": of_timm("skresnet18", layers=[1, 1, 1, 1]),
    "pvt_v2": of_timm("pvt_v2_b0", depths=(1, 1, 1, 1)),
    "starnet": of_timm("starnet_s1", depths=(1, 1, 1, 1)),
    "shvit": of_timm("shvit_s1"),
    "swiftformer": of_timm("swiftformer_xs", layers=(1, 1, 1, 1)),
    "inception_next": of_timm("inception_next_atto", depths=(1, 1, 1, 1)),
    "cs3darknet": of_timm("cs3darknet_s"),
    "cait": of_timm("cait_xxs24_224", 32, img_size=32, depth=2, embed_dim=32, num_heads=2),
    "eva02": of_timm("eva02_tiny_patch14_224", 28, img_size=28, depth=2),
    "sequencer": of_timm("sequencer2d_s", layers=(1, 1, 1, 1), embed_dims=(32, 32, 32, 32), hidden_sizes=(8, 8, 8, 8)),
    "hiera": of_timm("hiera_tiny_224", img_size=64, embed_dim=16, stages=(1, 1, 1, 1)),
    "lambda_resnet": of_timm("lambda_resnet26t"),
}


# --- torchvision ---

DILATED: dict[str, Any] = {"replace_stride_with_dilation": [False, True, True]}


def fcn() -> Any:
    backbone = models.ResNet(models.resnet.Bottleneck, [1, 1, 1, 1], **DILATED)
    return models.segmentation.fcn._fcn_resnet(backbone, 5, aux=True)


def segmenting(name: str, **settings: Any) -> Row:
    build = getattr(models.segmentation, name)
    return Row(lambda: build(weights=None, weights_backbone=None, num_classes=5, **settings), images(48))


def efficientnet_v2() -> Any:
    stages = [
        models.efficientnet.FusedMBConvConfig(1, 3, 1, 8, 8, 1),
        models.efficientnet.FusedMBConvConfig(4, 3, 2, 8, 16, 1),
        models.efficientnet.MBConvConfig(4, 3, 2, 16, 24, 2),
    ]
    return models.EfficientNet(stages, 0.0, stochastic_depth_prob=0.0, num_classes=5, last_channel=32)


def swin_v2() -> Any:
    settings: dict[str, Any] = {"block": models.swin_transformer.SwinTransformerBlockV2, "num_classes": 5}
    merging = models.swin_transformer.PatchMergingV2
    windows: dict[str, Any] = {"depths": [2, 2], "num_heads": [1, 2], "window_size": [4, 4]}
    return models.SwinTransformer(
        [2, 2], 16, **windows, downsample_layer=merging, stochastic_depth_prob=0.0, **settings
    )


def maxvit() -> Any:
    widths: dict[str, Any] = {"stem_channels": 8, "block_channels": [8, 16], "block_layers": [1, 1], "head_dim": 8}
    return models.MaxVit((32, 32), partition_size=4, stochastic_depth_prob=0.0, num_classes=5, **widths)


def video_resnet() -> Any:
    video = models.video.resnet
    return video.VideoResNet(video.BasicBlock, [video.Conv2Plus1D] * 4, [1, 1, 1, 1], video.R2Plus1dStem, num_classes=5)


def resnext() -> Any:
    return models.ResNet(models.resnet.Bottleneck, [1, 1, 1, 1], num_classes=5, groups=4, width_per_group=8)


OF_TORCHVISION: dict[str, Row] = {
    "fcn": Row(fcn, images(32, 2)),
    "deeplabv3": segmenting("deeplabv3_mobilenet_v3_large", aux_loss=True),
    "lraspp": segmenting("lraspp_mobilenet_v3_large"),
    "googlenet": Row(lambda: models.googlenet(num_classes=5, init_weights=False), images(64), output="logits"),
    "mnasnet": Row(lambda: models.mnasnet0_5(num_classes=5), images()),
    "regnet": Row(lambda: models.regnet_y_400mf(num_classes=5), images()),
    "efficientnet_v2": Row(efficientnet_v2, images(32)),
    "swin_v2": Row(swin_v2, images(32)),
    "maxvit": Row(maxvit, images(32)),
    "r2plus1d": Row(video_resnet, floats(2, 3, 4, 24, 24)),
    "resnext": Row(resnext, images(32)),
}


# --- transformers ---

IDS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LAYERS: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
ENCODER: dict[str, Any] = {**IDS, **LAYERS, "vocab_size": 64, "max_position_embeddings": 40}
DECODER: dict[str, Any] = {**ENCODER, "use_cache": False, "num_key_value_heads": 2}
OF_IMAGES: dict[str, Any] = {**LAYERS, "image_size": 32, "patch_size": 8, "num_labels": 5}
OF_SPEECH: dict[str, Any] = {
    **IDS,
    **LAYERS,
    "vocab_size": 64,
    "conv_dim": (16, 16),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    # Masking draws on the host, and skipped layers are a branch on a random number.
    "mask_time_prob": 0.0,
    "layerdrop": 0.0,
}


def encoder_decoder(**settings: Any) -> dict[str, Any]:
    parts = {
        f"{part}_{name}": value
        for part in ("encoder", "decoder")
        for name, value in {"layers": 1, "attention_heads": 4, "ffn_dim": 64, "layerdrop": 0.0}.items()
    }
    return {
        **IDS,
        **parts,
        "vocab_size": 64,
        "d_model": 32,
        "use_cache": False,
        "decoder_start_token_id": 0,
        **settings,
    }


def of_transformers(
    name: str, config: str, inputs: Callable[[], Tensors] | None = None, adam: bool | None = None, **settings: Any
) -> Row:
    return Row(
        lambda: getattr(hf, name)(getattr(hf, config)(**settings)),
        inputs or tokens(),
        adam=adam if adam is not None else "Classification" in name,
    )


def translating(name: str, config: str, **settings: Any) -> Row:
    def build() -> nn.Module:
        model = getattr(hf, name)(getattr(hf, config)(**settings))
        return Only(model, "logits", "input_ids", "decoder_input_ids")

    return Row(build, tokens(12, 7))


OF_TRANSFORMERS: dict[str, Row] = {
    "deberta_v2": of_transformers(
        "DebertaV2ForSequenceClassification",
        "DebertaV2Config",
        **ENCODER,
        relative_attention=True,
        position_buckets=8,
        pos_att_type=["p2c", "c2p"],
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        conv_kernel_size=3,
    ),
    "xlm": of_transformers(
        "XLMForSequenceClassification",
        "XLMConfig",
        adam=False,
        **IDS,
        vocab_size=64,
        emb_dim=32,
        n_layers=2,
        n_heads=4,
        n_langs=1,
    ),
    "rwkv": of_transformers(
        "RwkvForCausalLM",
        "RwkvConfig",
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        context_length=16,
        use_cache=False,
    ),
    "xlnet": Row(
        lambda: Only(
            hf.XLNetForSequenceClassification(
                hf.XLNetConfig(**IDS, vocab_size=64, d_model=32, n_layer=2, n_head=4, d_inner=64)
            ),
            "logits",
        ),
        tokens(),
    ),
    "funnel": of_transformers(
        "FunnelForSequenceClassification",
        "FunnelConfig",
        adam=False,
        vocab_size=64,
        block_sizes=[1, 1],
        num_decoder_layers=1,
        d_model=32,
        n_head=4,
        d_head=8,
        d_inner=64,
    ),
    "mpnet": of_transformers("MPNetForMaskedLM", "MPNetConfig", **ENCODER),
    "electra": of_transformers("ElectraForSequenceClassification", "ElectraConfig", **ENCODER, embedding_size=16),
    "squeezebert": of_transformers(
        "SqueezeBertForSequenceClassification",
        "SqueezeBertConfig",
        **ENCODER,
        embedding_size=32,
        q_groups=2,
        k_groups=2,
        v_groups=2,
        post_attention_groups=2,
        intermediate_groups=2,
        output_groups=2,
    ),
    "fnet": of_transformers("FNetForSequenceClassification", "FNetConfig", **ENCODER),
    "convbert": of_transformers(
        "ConvBertForSequenceClassification", "ConvBertConfig", **ENCODER, embedding_size=16, head_ratio=2
    ),
    "roformer": of_transformers("RoFormerForSequenceClassification", "RoFormerConfig", **ENCODER, embedding_size=16),
    "mobilebert": of_transformers(
        "MobileBertForSequenceClassification",
        "MobileBertConfig",
        **ENCODER,
        embedding_size=16,
        intra_bottleneck_size=16,
        true_hidden_size=16,
    ),
    "falcon": of_transformers("FalconForCausalLM", "FalconConfig", **DECODER),
    "gpt_neo": of_transformers(
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        **IDS,
        vocab_size=64,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=4,
        max_position_embeddings=40,
        use_cache=False,
    ),
    "gptj": of_transformers(
        "GPTJForCausalLM",
        "GPTJConfig",
        **{**IDS, "vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40},
        rotary_dim=4,
        use_cache=False,
    ),
    "phi": of_transformers("PhiForCausalLM", "PhiConfig", **DECODER),
    "stablelm": of_transformers("StableLmForCausalLM", "StableLmConfig", **DECODER),
    "pegasus": translating("PegasusForConditionalGeneration", "PegasusConfig", **encoder_decoder()),
    "marian": translating("MarianMTModel", "MarianConfig", **encoder_decoder()),
    "m2m_100": translating("M2M100ForConditionalGeneration", "M2M100Config", **encoder_decoder()),
    "blenderbot": translating("BlenderbotForConditionalGeneration", "BlenderbotConfig", **encoder_decoder()),
    "beit": of_transformers("BeitForImageClassification", "BeitConfig", images(32), **OF_IMAGES),
    "dinov2": of_transformers("Dinov2ForImageClassification", "Dinov2Config", images(32), **OF_IMAGES),
    "siglip": of_transformers("SiglipVisionModel", "SiglipVisionConfig", images(32), **OF_IMAGES),
    "deit": of_transformers("DeiTForImageClassification", "DeiTConfig", images(32), **OF_IMAGES),
    "yolos": of_transformers(
        "YolosForObjectDetection",
        "YolosConfig",
        images(32),
        **{**OF_IMAGES, "image_size": [32, 32]},
        num_detection_tokens=5,
    ),
    "pvt": of_transformers(
        "PvtForImageClassification",
        "PvtConfig",
        images(32),
        image_size=32,
        num_labels=5,
        depths=[1, 1],
        hidden_sizes=[16, 32],
        num_encoder_blocks=2,
        sequence_reduction_ratios=[2, 1],
        num_attention_heads=[1, 2],
        patch_sizes=[4, 2],
        strides=[4, 2],
        mlp_ratios=[2, 2],
    ),
    "swinv2": of_transformers(
        "Swinv2ForImageClassification",
        "Swinv2Config",
        images(32),
        image_size=32,
        patch_size=4,
        embed_dim=16,
        depths=[2, 1],
        num_heads=[2, 4],
        window_size=4,
        num_labels=5,
        drop_path_rate=0.0,
    ),
    "hubert": of_transformers("HubertForCTC", "HubertConfig", floats(3, 400), **OF_SPEECH),
    "unispeech": of_transformers("UniSpeechForCTC", "UniSpeechConfig", floats(3, 400), **OF_SPEECH),
    "data2vec_audio": of_transformers(
        "Data2VecAudioForCTC",
        "Data2VecAudioConfig",
        floats(3, 400),
        **{**OF_SPEECH, "num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 3},
    ),
    "audio_transformer": of_transformers(
        "ASTForAudioClassification",
        "ASTConfig",
        floats(3, 32, 16),
        **{**LAYERS, "num_labels": 5, "patch_size": 8, "frequency_stride": 4, "time_stride": 4},
        max_length=32,
        num_mel_bins=16,
    ),
    "patchtst": of_transformers(
        "PatchTSTForRegression",
        "PatchTSTConfig",
        floats(3, 16, 2),
        num_input_channels=2,
        context_length=16,
        patch_length=4,
        patch_stride=2,
        d_model=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=32,
        num_targets=2,
        loss="mse",
    ),
}

ROWS = {**OF_TIMM, **OF_TORCHVISION, **OF_TRANSFORMERS}


# --- the test ---


def without_randomness(module: nn.Module) -> None:
    """Switch dropout of every kind off; give constant parameters (fresh norms, zero heads) values of their own."""
    for part in module.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, float) and (name in ("p", "drop_prob", "drop_rate") or "dropout" in name):
                setattr(part, name, 0.0)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad and parameter.std(correction=0) < 1e-3:
                parameter.add_(0.1 * torch.randn_like(parameter))


def chosen(outputs: Any, output: str | None) -> torch.Tensor:
    """The output that the loss reads."""
    if isinstance(outputs, torch.Tensor):
        return outputs
    if output is not None and not isinstance(outputs, Mapping):
        outputs = outputs._asdict()
    result = outputs[output] if output is not None else next(iter(outputs.values()))
    assert isinstance(result, torch.Tensor)
    return result


def wide(tensors: Tensors) -> Tensors:
    return tuple(tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors)


class Side:
    """PyTorch's, with the loss that suits the output: classes for one row of numbers each, else numbers."""

    def __init__(self, module: nn.Module, row: Row) -> None:
        self.module, self.output = module, row.output
        with torch.no_grad():
            self.shape = chosen(copy.deepcopy(module)(*wide(row.inputs())), row.output).shape
        self.classes = len(self.shape) == 2
        self.adam = row.adam
        if self.adam:
            self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(module.parameters(), lr=RATE)
        else:
            self.optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9)

    def rules(self) -> dict[str, Any]:
        return {
            "loss": CrossEntropy() if self.classes else MSE(),
            "optimizer": AdamW(lr=RATE) if self.adam else SGD(lr=RATE, momentum=0.9),
        }

    def target(self) -> torch.Tensor:
        if self.classes:
            return torch.randint(0, self.shape[1], self.shape[:1])
        return torch.randn(self.shape, dtype=torch.float64)

    def step(self, inputs: Tensors, target: torch.Tensor) -> float:
        self.optimizer.zero_grad()
        prediction = chosen(self.module(*inputs), self.output)
        loss_of = nn.functional.cross_entropy if self.classes else nn.functional.mse_loss
        loss = loss_of(prediction, target)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def error(ours: Any, theirs: torch.Tensor) -> float:
    """Relative to the largest element."""
    expected = theirs.detach().numpy()
    assert ours.shape == expected.shape
    apart = np.abs(ours.astype(np.float64) - expected).max(initial=0.0)
    return float(apart / (np.abs(expected).max(initial=0.0) or 1.0))


class Table:
    """A line for each row, printed when all have run."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("three steps of architectures")
        for line in self.lines:
            terminalreporter.line(line)


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Table:
    table = Table()
    request.config.pluginmanager.register(table)
    return table


@pytest.fixture
def checking(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of each check."""
    seconds: list[float] = []

    def timed(*arguments: Any, **settings: Any) -> Any:
        begin = time.perf_counter()
        try:
            return verify(*arguments, **settings)
        finally:
            seconds.append(time.perf_counter() - begin)

    monkeypatch.setattr("edgeopt_exporters.export.verify", timed)
    return seconds


@pytest.mark.parametrize("name", ROWS)
def test_three_steps_are_pytorchs(name: str, table: Table, checking: list[float]) -> None:
    row = ROWS[name]
    torch.manual_seed(0)
    module = row.build().double().train()
    without_randomness(module)
    reference = Side(copy.deepcopy(module), row)
    begin = time.perf_counter()
    bundle = edgeopt.export(module, wide(row.inputs()), output=row.output, verbose=False, **reference.rules())
    exported, checked = time.perf_counter() - begin, sum(checking)
    graph = bundle.contents().graphs["step.onnx"]
    assert {decision.kind for decision in bundle.decisions} >= {"checked"}, bundle.decisions

    session = bundle.session()
    errors: dict[str, float] = {}
    for step in range(STEPS):
        inputs, target = wide(row.inputs()), reference.target()
        found = session.step((*(tensor.numpy() for tensor in inputs), target.numpy()))["loss"]
        expected = reference.step(inputs, target)
        errors[f"loss {step}"] = abs(found - expected) / abs(expected)
    state = session.state()
    named = [*reference.module.named_parameters(), *reference.module.named_buffers()]
    errors |= {tensor_name: error(state[tensor_name], tensor) for tensor_name, tensor in named if tensor_name in state}
    assert set(dict(reference.module.named_parameters())) <= state.keys()

    reference.module.eval()
    inputs = wide(row.inputs())
    with torch.no_grad():
        outputs = reference.module(*inputs)
    predicted = session.predict([tensor.numpy() for tensor in inputs])
    if isinstance(predicted, dict):
        predicted = predicted[row.output] if row.output else next(iter(predicted.values()))
    errors["prediction"] = error(predicted, chosen(outputs, row.output))

    worst = max(errors, key=lambda key: errors[key])
    nodes = len(onnx.load_from_string(graph).graph.node)
    table.lines.append(
        f"{name:20} export {exported:6.1f} s, check {checked:5.1f} s ({checked / exported:3.0%}); {nodes:6} nodes; "
        f"worst error {errors[worst]:.0e} ({worst})"
    )
    assert errors[worst] <= TOLERANCE, (worst, errors[worst])
