"""Vision, speech and time series of the transformers package: random weights, tiny."""

from __future__ import annotations

from functools import partial

import torch
import transformers as hf

from .language import ADAMW, IGNORE, PAD, VOCAB, padded, trained
from .workload import Workload, descend, lengths_mask, patches, tokens

VIT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
IMAGE = {"image_size": 16, "patch_size": 4, "num_channels": 3}
SGD = partial(torch.optim.SGD, lr=0.02, momentum=0.9)
SPEECH = VIT | {
    "vocab_size": 12, "pad_token_id": PAD, "conv_dim": (16, 16), "conv_kernel": (10, 4), "conv_stride": (5, 4),
    "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4, "mask_time_length": 4, "mask_time_prob": 0.2,
    "mask_feature_length": 4, "mask_feature_prob": 0.1, "ctc_zero_infinity": True, "num_feat_extract_layers": 2,
}  # fmt: skip


def images_classified(config, optimizer=partial(torch.optim.AdamW, lr=1e-3), size: int = 16, **sizes) -> Workload:  # noqa: B008
    model = hf.AutoModelForImageClassification.from_config(config(num_labels=4, **sizes))

    def batch():
        images, labels = patches(6, 3, size, 4)
        return {"pixel_values": images, "labels": labels}

    return trained(model, batch, optimizer)


def masked_autoencoder() -> Workload:
    decoder = {"decoder_hidden_size": 16, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2}
    config = hf.ViTMAEConfig(**VIT, **IMAGE, **decoder, decoder_intermediate_size=32, norm_pix_loss=True)
    return trained(hf.ViTMAEForPreTraining(config), lambda: {"pixel_values": patches(6, 3, 16, 4)[0]})


def segformer() -> Workload:
    config = hf.SegformerConfig(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32], num_attention_heads=[2, 4],
        patch_sizes=[3, 3], strides=[2, 2], mlp_ratios=[2, 2], decoder_hidden_size=32, num_labels=3, drop_path_rate=0.1,
    )  # fmt: skip

    def batch():
        images, _ = patches(4, 3, 16, 4)
        labels = (images[:, 0] > 0.7).long()
        labels[:, 0] = 255
        return {"pixel_values": images, "labels": labels}

    return trained(hf.SegformerForSemanticSegmentation(config), batch)


def detection_transformer() -> Workload:
    """Boxes matched by the Hungarian algorithm; one image has none."""
    config = hf.YolosConfig(**VIT, image_size=[16, 16], patch_size=4, num_detection_tokens=6, num_labels=2)

    def batch():
        images, place = patches(3, 3, 16, 4)
        boxes = torch.stack(
            [(4 * place + 2) / 16, torch.full((3,), 0.25), torch.full((3,), 0.25), torch.full((3,), 0.25)], 1
        )
        labels = [{"class_labels": torch.zeros(1, dtype=torch.long), "boxes": box[None]} for box in boxes]
        labels[2] = {"class_labels": torch.zeros(0, dtype=torch.long), "boxes": torch.zeros(0, 4)}
        return {"pixel_values": images, "labels": labels}

    return trained(hf.YolosForObjectDetection(config), batch)


def clip() -> Workload:
    text = VIT | {"vocab_size": VOCAB, "max_position_embeddings": 32, "eos_token_id": 2}
    config = hf.CLIPConfig(text_config=text, vision_config=VIT | IMAGE, projection_dim=16)

    def batch():
        images, place = patches(6, 3, 16, 4)
        given = padded(6)
        ids = torch.where(given["attention_mask"].bool(), 4 + place[:, None], PAD)
        ids[:, -1] = 2
        return {
            "input_ids": ids,
            "attention_mask": given["attention_mask"],
            "pixel_values": images,
            "return_loss": True,
        }

    return trained(hf.CLIPModel(config), batch)


def waves() -> tuple[torch.Tensor, torch.Tensor]:
    _, mask = lengths_mask(3, 400)
    pitch = torch.rand(3, 1) * 0.5
    return (torch.sin(pitch * torch.arange(400)) + 0.1 * torch.randn(3, 400)) * mask, mask.long()


def speech_ctc(config, **sizes) -> Workload:
    """Masked spans of frames, padded waves, CTC over targets of different lengths."""

    def batch():
        values, mask = waves()
        labels = torch.randint(1, 12, (3, 4)).masked_fill(torch.arange(4) >= torch.randint(1, 5, (3, 1)), IGNORE)
        return {"input_values": values, "attention_mask": mask, "labels": labels}

    return trained(hf.AutoModelForCTC.from_config(config(**SPEECH, **sizes)), batch)


def speech_contrastive() -> Workload:
    """Pretraining: quantized targets by Gumbel-softmax, negatives, -Inf where a negative equals the target."""
    extra = {"num_codevectors_per_group": 6, "num_codevector_groups": 2, "codevector_dim": 8, "proj_codevector_dim": 8}
    model = hf.Wav2Vec2ForPreTraining(hf.Wav2Vec2Config(**SPEECH, **extra, num_negatives=4))

    def batch():
        values, _ = waves()
        frames = int(model._get_feat_extract_output_lengths(400))
        masked = torch.rand(3, frames) < 0.4
        masked[:, :3] = True
        negatives = torch.randint(0, 3 * frames, (3, frames, 4))
        return {"input_values": values, "mask_time_indices": masked, "sampled_negative_indices": negatives}

    return trained(model, batch)


def whisper() -> Workload:
    layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    config = hf.WhisperConfig(
        **layers, d_model=32, encoder_ffn_dim=48, decoder_ffn_dim=48, vocab_size=VOCAB, num_mel_bins=8,
        max_source_positions=20, max_target_positions=16, pad_token_id=PAD, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
        apply_spec_augment=True, mask_time_length=3, mask_feature_length=2, mask_feature_prob=0.1,
    )  # fmt: skip

    def batch():
        labels = tokens(3, 6, VOCAB).masked_fill(~lengths_mask(3, 6)[1], IGNORE)
        return {"input_features": torch.randn(3, 8, 40), "labels": labels}

    return trained(hf.WhisperForConditionalGeneration(config), batch)


def time_series() -> Workload:
    """Student-t forecasts of series with missing values."""
    config = hf.TimeSeriesTransformerConfig(
        prediction_length=4, context_length=8, lags_sequence=[1, 2], num_time_features=1, d_model=16, encoder_layers=1,
        decoder_layers=1, encoder_ffn_dim=24, decoder_ffn_dim=24,
    )  # fmt: skip

    def batch():
        series = torch.randn(6, 14).cumsum(1).abs()
        seen = (torch.rand(6, 14) < 0.9).float()
        clock = torch.linspace(0, 1, 14)[None, :, None].expand(6, -1, -1)
        whole = {"values": series * seen, "time_features": clock, "observed_mask": seen}
        past = {f"past_{key}": value[:, :10] for key, value in whole.items()}
        return past | {f"future_{key}": value[:, 10:] for key, value in whole.items()}

    return trained(hf.TimeSeriesTransformerForPrediction(config), batch)


def decision_transformer() -> Workload:
    config = hf.DecisionTransformerConfig(
        state_dim=4, act_dim=2, hidden_size=16, n_layer=2, n_head=2, max_ep_len=32, n_positions=64, n_inner=32
    )
    model = hf.DecisionTransformerModel(config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(_):
        states, (_, mask) = torch.randn(4, 6, 4), lengths_mask(4, 6)
        actions = states[..., :2].tanh()
        out = model(
            states=states, actions=actions, rewards=torch.zeros(4, 6, 1), returns_to_go=torch.rand(4, 6, 1),
            timesteps=torch.arange(6).expand(4, -1), attention_mask=mask.long(),
        )  # fmt: skip
        return descend(optimizer, torch.nn.functional.mse_loss(out.action_preds[mask], actions[mask]))

    return Workload({"model": model}, step, [optimizer])


RESNET = {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"}
CONVNEXT = {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2, "patch_size": 2, "drop_path_rate": 0.2}
SWIN = {"image_size": 16, "patch_size": 2, "embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4], "window_size": 4}

MODELS = {
    "vit": partial(images_classified, hf.ViTConfig, **VIT, **IMAGE),
    "dinov2": partial(images_classified, hf.Dinov2Config, drop_path_rate=0.1, mlp_ratio=2, **VIT, **IMAGE),
    "hf_resnet": partial(images_classified, hf.ResNetConfig, SGD, **RESNET),
    "convnext": partial(images_classified, hf.ConvNextConfig, **CONVNEXT),
    "mobilenet_v2": partial(images_classified, hf.MobileNetV2Config, ADAMW, 32, depth_multiplier=0.25, image_size=32),
    "swin": partial(images_classified, hf.SwinConfig, **SWIN),
    "masked_autoencoder": masked_autoencoder,
    "segformer": segformer,
    "detection_transformer": detection_transformer,
    "clip": clip,
    "wav2vec2_ctc": partial(speech_ctc, hf.Wav2Vec2Config),
    "hubert_ctc": partial(speech_ctc, hf.HubertConfig, do_stable_layer_norm=True, feat_extract_norm="layer"),
    "speech_contrastive": speech_contrastive,
    "whisper": whisper,
    "time_series": time_series,
    "decision_transformer": decision_transformer,
}
