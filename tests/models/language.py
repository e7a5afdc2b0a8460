"""Language models of the transformers package: random weights, tiny, padded batches, attention eager and fused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import transformers as hf

from .workload import Workload, descend, lengths_mask, tokens

hf.logging.set_verbosity_error()  # hints about configurations

VOCAB, PAD, IGNORE = 48, 0, -100
TINY = {"vocab_size": VOCAB, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES = TINY | {"intermediate_size": 48, "max_position_embeddings": 32, "pad_token_id": PAD}
ROTARY = SIZES | {"num_key_value_heads": 2, "head_dim": 8, "bos_token_id": 1, "eos_token_id": 2}
ADAMW = partial(torch.optim.AdamW, lr=2e-3)


def padded(batch: int = 4, length: int = 10, left: bool = False) -> dict[str, torch.Tensor]:
    """Ids, attention mask, labels with -100 on padding."""
    _, mask = lengths_mask(batch, length)
    mask = mask.flip(1) if left else mask
    ids = tokens(batch, length, VOCAB).masked_fill(~mask, PAD)
    return {"input_ids": ids, "attention_mask": mask.long(), "labels": ids.masked_fill(~mask, IGNORE)}


def trained(model, batch: Callable[[], dict], optimizer=ADAMW) -> Workload:
    model.train()
    chosen = optimizer(model.parameters())
    return Workload({"model": model}, lambda step: descend(chosen, model(**batch()).loss), [chosen])


def causal(config, attention: str = "eager", left: bool = False, optimizer=ADAMW, **sizes) -> Workload:
    model = hf.AutoModelForCausalLM.from_config(config(**sizes), attn_implementation=attention)
    return trained(model, partial(padded, left=left), optimizer)


def masked(config, attention: str = "eager", **sizes) -> Workload:
    """One token of five is hidden, and only these have a label."""
    model = hf.AutoModelForMaskedLM.from_config(config(**sizes), attn_implementation=attention)

    def batch():
        given = padded()
        hidden = (torch.rand(given["input_ids"].shape) < 0.2) & given["attention_mask"].bool()
        hidden[:, 0] = True
        given["labels"] = given["input_ids"].masked_fill(~hidden, IGNORE)
        given["input_ids"] = given["input_ids"].masked_fill(hidden, 3)
        return given

    return trained(model, batch)


def classified(config, attention: str = "sdpa", **sizes) -> Workload:
    model = hf.AutoModelForSequenceClassification.from_config(
        config(num_labels=3, **sizes), attn_implementation=attention
    )

    def batch():
        given = padded()
        return given | {"labels": given["input_ids"][:, 0] % 3}

    return trained(model, batch, partial(torch.optim.Adam, lr=1e-3))


def translated(config, attention: str = "eager", optimizer=ADAMW, **sizes) -> Workload:
    model = hf.AutoModelForSeq2SeqLM.from_config(config(**sizes), attn_implementation=attention)
    return trained(model, padded, optimizer)


def adafactor(parameters):
    return torch.optim.Adafactor(parameters, lr=1e-2)


GPT2 = {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
T5 = {
    "vocab_size": VOCAB,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": PAD,
}
BART = {"vocab_size": VOCAB, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 32,
        "pad_token_id": PAD, "decoder_start_token_id": 2}  # fmt: skip
DISTILBERT = {
    "vocab_size": VOCAB,
    "dim": 32,
    "hidden_dim": 48,
    "n_layers": 2,
    "n_heads": 4,
    "max_position_embeddings": 32,
}
MOE = ROTARY | {"num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True}
QWEN_MOE = ROTARY | {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "output_router_logits": True,
}

MODELS = {
    "bert_masked": partial(masked, hf.BertConfig, **SIZES),
    "bert_sdpa": partial(masked, hf.BertConfig, "sdpa", **SIZES),
    "roberta": partial(classified, hf.RobertaConfig, "eager", **SIZES | {"max_position_embeddings": 40}),
    "distilbert": partial(classified, hf.DistilBertConfig, **DISTILBERT),
    "albert": partial(masked, hf.AlbertConfig, embedding_size=16, **SIZES),
    "deberta": partial(masked, hf.DebertaV2Config, relative_attention=True, pos_att_type=["p2c", "c2p"], **SIZES),
    "longformer": partial(masked, hf.LongformerConfig, attention_window=4, **SIZES | {"max_position_embeddings": 40}),
    "gpt2": partial(causal, hf.GPT2Config, **GPT2),
    "gpt2_sdpa_left": partial(causal, hf.GPT2Config, "sdpa", left=True, **GPT2),
    "gpt_neox": partial(causal, hf.GPTNeoXConfig, **SIZES),
    "bloom": partial(causal, hf.BloomConfig, **TINY | {"n_layer": 2, "n_head": 4}),
    "opt": partial(causal, hf.OPTConfig, ffn_dim=48, word_embed_proj_dim=32, max_position_embeddings=32, **TINY),
    "llama": partial(causal, hf.LlamaConfig, **ROTARY),
    "llama_sdpa_left": partial(causal, hf.LlamaConfig, "sdpa", left=True, **ROTARY),
    "mistral": partial(causal, hf.MistralConfig, "sdpa", sliding_window=4, **ROTARY),
    "mixtral": partial(causal, hf.MixtralConfig, **MOE),
    "qwen2": partial(causal, hf.Qwen2Config, "sdpa", **SIZES | {"num_key_value_heads": 2}),
    "qwen3_moe": partial(causal, hf.Qwen3MoeConfig, **QWEN_MOE),
    "gemma2": partial(causal, hf.Gemma2Config, sliding_window=4, left=True, **ROTARY),
    "phi3": partial(causal, hf.Phi3Config, "sdpa", **SIZES | {"num_key_value_heads": 4}),
    "gpt_oss": partial(causal, hf.GptOssConfig, sliding_window=4, **MOE),
    "mamba": partial(causal, hf.MambaConfig, state_size=4, **TINY),
    "t5": partial(translated, hf.T5Config, optimizer=adafactor, **T5),
    "t5_gated": partial(translated, hf.T5Config, feed_forward_proj="gated-gelu", **T5),
    "bart": partial(translated, hf.BartConfig, "sdpa", **BART),
}
