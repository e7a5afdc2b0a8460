"""Sequences: recurrent nets, nn.Transformer, CTC, CRF, mixtures of experts; masks of every kind."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .workload import Workload, descend, lengths_mask, supervised, tokens

VOCAB, PAD, IGNORE = 32, 0, -100
NEGATIVE_INFINITY = float("-inf")


class PackedTagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 16, padding_idx=PAD)
        self.rnn = nn.LSTM(16, 12, num_layers=2, bidirectional=True, dropout=0.2, batch_first=True)
        self.head = nn.Linear(24, VOCAB)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(self.embedding(ids), lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.head(out)


def lstm_packed() -> Workload:
    model = PackedTagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss():
        lengths, mask = lengths_mask(6, 9)
        ids = tokens(6, 9, VOCAB).masked_fill(~mask, PAD)
        logits = model(ids, lengths)
        labels = ids.roll(-1, 1).masked_fill(~mask, IGNORE)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    return supervised(model, optimizer, loss)


class CharacterModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 16)
        self.gru = nn.GRU(16, 24)
        self.head = nn.Linear(24, VOCAB)

    def forward(self, ids, hidden):
        out, hidden = self.gru(self.embedding(ids), hidden)
        return self.head(out), hidden


def gru_truncated() -> Workload:
    """Time first; the hidden state is carried from step to step, detached; clipped."""
    model = CharacterModel()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3)
    hidden = torch.zeros(1, 6, 24)

    def step(_):
        nonlocal hidden
        ids = tokens(6, 10, VOCAB).t()
        logits, hidden = model(ids[:-1], hidden.detach())
        loss = F.cross_entropy(logits.flatten(0, 1), ids[1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    return Workload({"model": model}, step, [optimizer])


def rnn_and_cells() -> Workload:
    """A relu RNN read by an LSTMCell and a GRUCell, one step of time after the other."""
    model = nn.ModuleDict(
        {
            "rnn": nn.RNN(4, 12, nonlinearity="relu", bidirectional=True),
            "lstm": nn.LSTMCell(24, 12),
            "gru": nn.GRUCell(12, 8),
            "head": nn.Linear(8, 1),
        }
    )
    optimizer = torch.optim.Adadelta(model.parameters())

    def loss():
        x = torch.randn(7, 5, 4)
        state, memory = (torch.zeros(5, 12), torch.zeros(5, 12)), torch.zeros(5, 8)
        for frame in model["rnn"](x)[0]:
            state = model["lstm"](frame, state)
            memory = model["gru"](state[0], memory)
        return F.l1_loss(model["head"](memory), x.sum((0, 2))[:, None].tanh())

    return supervised(model, optimizer, loss)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 16, padding_idx=PAD)
        self.position = nn.Parameter(0.02 * torch.randn(16, 16))
        self.transformer = nn.Transformer(16, 2, 2, 2, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, VOCAB)

    def forward(self, source, target):
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        out = self.transformer(
            self.embedding(source) + self.position[: source.shape[1]],
            self.embedding(target) + self.position[: target.shape[1]],
            tgt_mask=causal,
            src_key_padding_mask=torch.zeros(source.shape).masked_fill(source == PAD, NEGATIVE_INFINITY),
            tgt_key_padding_mask=torch.zeros(target.shape).masked_fill(target == PAD, NEGATIVE_INFINITY),
            memory_key_padding_mask=torch.zeros(source.shape).masked_fill(source == PAD, NEGATIVE_INFINITY),
        )
        return self.head(out)


def transformer_translation() -> Workload:
    """nn.Transformer: causal and padding masks of -Inf, labels that are ignored, warm-up of the learning rate."""
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 20, (20 / (s + 1)) ** 0.5))

    def step(_):
        source = tokens(6, 8, VOCAB).masked_fill(~lengths_mask(6, 8)[1], PAD)
        target = tokens(6, 7, VOCAB).masked_fill(~lengths_mask(6, 7)[1], PAD)
        target[:, 0] = 1
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.transpose(1, 2), target[:, 1:], ignore_index=PAD, label_smoothing=0.1)
        loss = descend(optimizer, loss)
        scheduler.step()
        return loss

    return Workload({"model": model}, step, [optimizer])


class SentenceEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True, norm_first=False)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True)
        self.head = nn.Linear(16, 2)

    def forward(self, ids, padded):
        hidden = self.encoder(self.embedding(ids), src_key_padding_mask=padded)
        scores = hidden[..., 0].masked_fill(padded, NEGATIVE_INFINITY)
        pooled = torch.einsum("bt,btc->bc", scores.softmax(1), hidden)
        return self.head(pooled + hidden.masked_fill(padded[..., None], NEGATIVE_INFINITY).amax(1))


def encoder_padding() -> Workload:
    """nn.TransformerEncoder with boolean padding; every fifth step validates in eval mode, on its fast path."""
    model = SentenceEncoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(index):
        _, mask = lengths_mask(8, 9)
        ids = tokens(8, 9, VOCAB)
        labels = (ids[:, 0] % 2).long()
        loss = descend(optimizer, F.cross_entropy(model(ids, ~mask), labels))
        if index % 5 == 4:
            model.eval()
            with torch.no_grad():
                loss = loss + F.cross_entropy(model(ids, ~mask), labels)
            model.train()
        return loss

    return Workload({"model": model}, step, [optimizer])


class CausalBlock(nn.Module):
    """Attention by hand: -Inf above the diagonal from a buffer, ALiBi slopes, a gated MLP."""

    def __init__(self, width: int = 16, heads: int = 4, length: int = 12):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, 32), nn.Linear(width, 32), nn.Linear(32, width)
        self.norm_a, self.norm_b = nn.RMSNorm(width), nn.RMSNorm(width)
        distance = torch.arange(length)[None] - torch.arange(length)[:, None]
        slopes = 2.0 ** -torch.arange(1, heads + 1)[:, None, None]
        mask = torch.full((length, length), NEGATIVE_INFINITY).triu(1)
        self.register_buffer("bias", slopes * distance + mask)

    def forward(self, x):
        q, k, v = self.qkv(self.norm_a(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + self.bias
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        normed = self.norm_b(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


def causal_alibi() -> Workload:
    model = nn.Sequential(nn.Embedding(VOCAB, 16), CausalBlock(), CausalBlock(), nn.LayerNorm(16), nn.Linear(16, VOCAB))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), foreach=True)

    def loss():
        ids = tokens(4, 13, VOCAB)
        logits = model(ids[:, :-1])
        z_loss = 1e-4 * logits.logsumexp(-1).square().mean()
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) + z_loss

    return supervised(model, optimizer, loss)


class Experts(nn.Module):
    """Noisy top-2 routing: gates that were not chosen are -Inf before the softmax."""

    def __init__(self, width: int = 16, experts: int = 4):
        super().__init__()
        self.router, self.noise = nn.Linear(width, experts), nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.Linear(24, width)) for _ in range(experts)
        )

    def forward(self, x):
        scores = self.router(x)
        noisy = scores + torch.randn_like(scores) * F.softplus(self.noise(x))
        top, chosen = noisy.topk(2, -1)
        gates = torch.full_like(noisy, NEGATIVE_INFINITY).scatter(-1, chosen, top).softmax(-1)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows = (chosen == index).any(-1).nonzero().squeeze(-1)
            out.index_add_(0, rows, gates[rows, index, None] * expert(x[rows]))
        load = gates.sum(0)
        return out, load.var() / load.mean().square()


def mixture_of_experts() -> Workload:
    model = nn.ModuleDict({"embed": nn.Linear(8, 16), "experts": Experts(), "head": nn.Linear(16, 1)})
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def loss():
        x = torch.randn(32, 8)
        hidden, balance = model["experts"](model["embed"](x))
        return F.huber_loss(model["head"](hidden), x.abs().sum(1, keepdim=True)) + 0.01 * balance

    return supervised(model, optimizer, loss)


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(8, 16, 3, padding=1), nn.BatchNorm1d(16), nn.Hardtanh(0, 20))
        self.gru = nn.GRU(16, 12, bidirectional=True)
        self.head = nn.Linear(24, 10)

    def forward(self, x):
        return self.head(self.gru(self.conv(x).permute(2, 0, 1))[0]).log_softmax(-1)


def ctc_speech() -> Workload:
    """Filter banks with log(1e-6 + power), spectral masking, CTC with targets of different lengths."""
    model = Listener()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss():
        labels, label_lengths = torch.randint(1, 10, (5, 4)), torch.randint(1, 5, (5,))
        power = torch.rand(5, 8, 20).pow(4)
        power[:, 1, :] += labels.float().repeat_interleave(5, 1)
        features = torch.log(power + 1e-6)
        features[:, 4:6] = features.mean()
        frames = torch.randint(12, 21, (5,))
        return F.ctc_loss(model(features), labels, frames, label_lengths, zero_infinity=True)

    return supervised(model, optimizer, loss)


class ConditionalRandomField(nn.Module):
    """Transitions back into the start tag are forbidden: -Inf in a buffer beside the learnt ones."""

    def __init__(self, tags: int):
        super().__init__()
        self.transitions = nn.Parameter(0.1 * torch.randn(tags, tags))
        forbidden = torch.zeros(tags, tags)
        forbidden[1:, 0] = NEGATIVE_INFINITY
        self.register_buffer("forbidden", forbidden)

    def forward(self, emissions, tags, mask):
        transitions = self.transitions + self.forbidden
        alpha, gold = emissions[:, 0], emissions[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, emissions.shape[1]):
            moved = torch.logsumexp(alpha[:, :, None] + transitions, 1) + emissions[:, t]
            step = transitions[tags[:, t - 1], tags[:, t]] + emissions[:, t].gather(1, tags[:, t, None]).squeeze(1)
            alpha = torch.where(mask[:, t, None], moved, alpha)
            gold = gold + torch.where(mask[:, t], step, torch.zeros_like(step))
        return (torch.logsumexp(alpha, 1) - gold).mean()


def crf_tagger() -> Workload:
    model = nn.ModuleDict(
        {"embed": nn.Embedding(VOCAB, 16), "scores": nn.Linear(16, 5), "crf": ConditionalRandomField(5)}
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def loss():
        _, mask = lengths_mask(6, 7)
        ids = tokens(6, 7, VOCAB)
        tags = torch.where(torch.arange(7) == 0, 0, 1 + ids % 4)
        return model["crf"](model["scores"](model["embed"](ids)), tags, mask)

    return supervised(model, optimizer, loss)


class Attender(nn.Module):
    """Additive attention of an LSTM decoder over an encoder; teacher forcing half of the time."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 12, padding_idx=PAD)
        self.encoder, self.cell = nn.GRU(12, 12, batch_first=True), nn.LSTMCell(24, 12)
        self.query, self.energy, self.head = nn.Linear(12, 12), nn.Linear(12, 1), nn.Linear(24, VOCAB)

    def forward(self, source, target):
        memory, last = self.encoder(self.embedding(source))
        h, c, token, logits = last[0], torch.zeros_like(last[0]), target[:, 0], []
        for t in range(1, target.shape[1]):
            scores = self.energy(torch.tanh(memory + self.query(h)[:, None])).squeeze(-1)
            scores[source == PAD] = NEGATIVE_INFINITY
            context = (scores.softmax(-1)[:, None] @ memory).squeeze(1)
            h, c = self.cell(torch.cat([self.embedding(token), context], -1), (h, c))
            logits.append(self.head(torch.cat([h, context], -1)))
            token = target[:, t] if torch.rand(()) < 0.5 else logits[-1].argmax(-1)
        return torch.stack(logits, 1)


def attention_decoder() -> Workload:
    model = Attender()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, amsgrad=True)

    def loss():
        source = tokens(5, 6, VOCAB).masked_fill(~lengths_mask(5, 6)[1], PAD)
        return F.cross_entropy(model(source, source).flatten(0, 1), source[:, 1:].flatten(), ignore_index=PAD)

    return supervised(model, optimizer, loss)


def sparse_embeddings() -> Workload:
    """Bags of ids with sparse gradients: SparseAdam beside Adagrad."""
    model = nn.ModuleDict(
        {"bag": nn.EmbeddingBag(200, 16, mode="mean", sparse=True, padding_idx=PAD), "head": nn.Linear(16, 4)}
    )
    sparse = torch.optim.SparseAdam(model["bag"].parameters(), lr=1e-2)
    dense = torch.optim.Adagrad(model["head"].parameters(), lr=1e-2)

    def step(_):
        ids = tokens(16, 6, 200).masked_fill(torch.rand(16, 6) < 0.3, PAD)
        loss = F.cross_entropy(model["head"](model["bag"](ids)), ids[:, 0] % 4)
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
        return loss.detach()

    return Workload({"model": model}, step, [sparse, dense])


def word_vectors() -> Workload:
    """Skip-gram with negative samples, and a sampled softmax whose accidental hits are -Inf."""
    model = nn.ModuleDict({"word": nn.Embedding(60, 12), "context": nn.Embedding(60, 12)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)

    def loss():
        ids = tokens(24, 2, 60)
        word, context = model["word"](ids[:, 0]), model["context"](ids[:, 1])
        negative = torch.randint(4, 60, (24, 5))
        scores = torch.einsum("bc,bnc->bn", word, model["context"](negative))
        skip_gram = -F.logsigmoid((word * context).sum(1)).mean() - F.logsigmoid(-scores).mean()
        hits = negative == ids[:, 1:]
        logits = torch.cat([(word * context).sum(1, keepdim=True), scores.masked_fill(hits, NEGATIVE_INFINITY)], 1)
        return skip_gram + F.cross_entropy(logits, torch.zeros(24, dtype=torch.long))

    return supervised(model, optimizer, loss)


MODELS = {
    "lstm_packed": lstm_packed,
    "gru_truncated": gru_truncated,
    "rnn_and_cells": rnn_and_cells,
    "transformer_translation": transformer_translation,
    "encoder_padding": encoder_padding,
    "causal_alibi": causal_alibi,
    "mixture_of_experts": mixture_of_experts,
    "ctc_speech": ctc_speech,
    "crf_tagger": crf_tagger,
    "attention_decoder": attention_decoder,
    "sparse_embeddings": sparse_embeddings,
    "word_vectors": word_vectors,
}
