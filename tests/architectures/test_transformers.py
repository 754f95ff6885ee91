"""Architectures of transformers, with few and narrow layers."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import nn

IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SMALL = {
    **IDS,
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
DECODER = {**SMALL, "use_cache": False}
SEQ2SEQ = {**IDS, "vocab_size": 64, "d_model": 32, "use_cache": False, "decoder_start_token_id": 0}
SPEECH = {
    **SMALL,
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


def tokens(length: int = 12, batch: int = 3) -> tuple[torch.Tensor]:
    """Padding at the end of the first sequence."""
    ids = torch.randint(3, 64, (batch, length))
    ids[0, -2:] = 0
    return (ids,)


def images(size: int = 32, batch: int = 3) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 3, size, size),)


class Decoding(nn.Module):
    """Only the logits of an encoder with a decoder, without the caches that it returns besides."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, decoder_input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, decoder_input_ids=decoder_input_ids).logits


def distilbert() -> Any:
    return hf.DistilBertForSequenceClassification(
        hf.DistilBertConfig(vocab_size=64, dim=32, n_layers=2, n_heads=4, hidden_dim=64)
    )


def gpt2() -> Any:
    config = hf.GPT2Config(**IDS, vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=16, use_cache=False)
    return hf.GPT2LMHeadModel(config)


def opt() -> Any:
    return hf.OPTForCausalLM(hf.OPTConfig(**DECODER, ffn_dim=64, max_position_embeddings=32, word_embed_proj_dim=32))


def t5() -> Any:
    return Decoding(hf.T5ForConditionalGeneration(hf.T5Config(**SEQ2SEQ, num_layers=1, num_heads=4, d_ff=64, d_kv=8)))


def bart() -> Any:
    layers = {
        f"{part}_{name}": value
        for part in ("encoder", "decoder")
        for name, value in {"layers": 1, "attention_heads": 4, "ffn_dim": 64}.items()
    }
    return Decoding(hf.BartForConditionalGeneration(hf.BartConfig(**SEQ2SEQ, **layers, max_position_embeddings=32)))


def whisper_encoder() -> Any:
    config = hf.WhisperConfig(
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=64,
        num_mel_bins=16,
        max_source_positions=24,
    )
    return hf.models.whisper.modeling_whisper.WhisperEncoder(config)


def clip_vision() -> Any:
    settings = {name: value for name, value in SMALL.items() if name != "vocab_size" and name not in IDS}
    return hf.CLIPVisionModelWithProjection(
        hf.CLIPVisionConfig(**settings, projection_dim=16, image_size=32, patch_size=8)
    )


def segformer() -> Any:
    config = hf.SegformerConfig(
        depths=[1, 1],
        hidden_sizes=[8, 16],
        num_attention_heads=[1, 2],
        num_encoder_blocks=2,
        sr_ratios=[4, 2],
        patch_sizes=[7, 3],
        strides=[4, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
        num_labels=5,
    )
    return hf.SegformerForSemanticSegmentation(config)


ROWS = {
    "bert": lambda: (hf.BertForSequenceClassification(hf.BertConfig(**SMALL)), tokens()),
    "distilbert": lambda: (distilbert(), tokens()),
    "albert": lambda: (hf.AlbertForMaskedLM(hf.AlbertConfig(**SMALL, embedding_size=16)), tokens()),
    "gpt2": lambda: (gpt2(), tokens()),
    "gpt_neox": lambda: (hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**DECODER)), tokens()),
    "opt": lambda: (opt(), tokens()),
    "llama": lambda: (hf.LlamaForCausalLM(hf.LlamaConfig(**DECODER, num_key_value_heads=2)), tokens()),
    "qwen2": lambda: (hf.Qwen2ForCausalLM(hf.Qwen2Config(**DECODER, num_key_value_heads=2)), tokens()),
    "t5": lambda: (t5(), (*tokens(), *tokens(7))),
    "bart": lambda: (bart(), (*tokens(), *tokens(7))),
    "whisper_encoder": lambda: (whisper_encoder(), (torch.randn(3, 16, 48),)),
    "wav2vec2": lambda: (hf.Wav2Vec2ForCTC(hf.Wav2Vec2Config(**SPEECH)), (torch.randn(3, 400),)),
    "clip_text": lambda: (hf.CLIPTextModelWithProjection(hf.CLIPTextConfig(**SMALL, projection_dim=16)), tokens()),
    "clip_vision": lambda: (clip_vision(), images()),
    "segformer": lambda: (segformer(), images()),
}


def test_gradients_and_statistics_are_pytorchs(build, check_architecture):
    check_architecture(build)
