"""How far a bundle's graphs are from the PyTorch model, and how far they may be.

Both get the same sources and the same target prefixes, token by token; their log-probabilities are compared.
Axes: B sentences, S source, T target, V vocabulary.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch

from export.builder import Array
from export.linear import State
from export.runner import GraphRunner, ScorerRunner, in_batches, longest_target, padded
from model.checkpoint import build_model
from model.config import ModelConfig
from model.layers import sinusoidal_positions
from model.manifest import AlignmentHeads
from model.recurrent import Recurrent
from model.transformer import Transformer, forced_attention

MAX_TARGET_TOKENS = 64
MAX_LOGITS = 1 << 22  # of a scorer at a time: 16 MB, which five arrays take
SHAPES = ((1, 1, 1), (1, 7, 5), (3, 12, 9), (8, 33, 17))  # B, S, T of the seeded inputs
SEED = 20_170_612  # arXiv:1706.03762


class ParityError(ValueError):
    """Graphs that are too far from the model; the message says which number, and the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Limits that the graphs of a precision must keep."""

    largest_difference: float  # of any token's log-probability
    mean_difference: float  # of the log-probability of the reference's best token
    same_best_token: float  # smallest accepted share of positions; of near-equals either is the best


NEAR_TIE = 1e-4  # nats
# fp32 differs by the order of its sums; a wrong mask or position gives more than 0.1.
# int8 moves the log-probabilities of unlikely tokens by whole units, which is no sign of a fault.
# fp16 has 11 bits, and the sums of a residual stream lose some of them.
TOLERANCES = {
    "fp32": Tolerance(largest_difference=1e-3, mean_difference=1e-4, same_best_token=0.99),
    "fp16": Tolerance(largest_difference=0.1, mean_difference=0.01, same_best_token=0.97),
    "int8": Tolerance(largest_difference=np.inf, mean_difference=0.1, same_best_token=0.90),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Differences that a comparison found."""

    largest_difference: float
    mean_difference: float
    same_best_token: float
    positions: int  # target positions compared

    def require(self, precision: str, tolerance: Tolerance) -> None:
        """Refuse graphs beyond the tolerance.

        Raises:
            ParityError: with the first number beyond its limit.
        """
        for name in ("largest_difference", "mean_difference"):
            found, limit = getattr(self, name), getattr(tolerance, name)
            if not found <= limit:  # also true of NaN
                raise ParityError(
                    f"{precision}: {name} is {found:.3g} log-probability, at most {limit:.3g} is accepted"
                )
        if not self.same_best_token >= tolerance.same_best_token:
            raise ParityError(
                f"{precision}: the best token is the same at {self.same_best_token:.1%} of {self.positions} positions, "
                f"at least {tolerance.same_best_token:.1%} is accepted"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerParity:
    """Mean and largest differences between a scorer and the model."""

    scorer_mean_difference: float  # of the given tokens' log-probabilities
    scorer_largest_difference: float
    attention_mean_difference: float  # half the sum of a row's differences: the share that lies elsewhere
    attention_largest_difference: float

    def require(self, precision: str, tolerance: Tolerance) -> None:
        """Refuse a scorer beyond the tolerance of the step; attention may differ as much as log-probabilities.

        Raises:
            ParityError: with the first number beyond its limit.
        """
        for name, found in asdict(self).items():
            limit = tolerance.mean_difference if "mean" in name else tolerance.largest_difference
            if not found <= limit:  # also true of NaN
                raise ParityError(f"{precision}: {name} is {found:.3g}, at most {limit:.3g} is accepted")


class ForcedInputs(NamedTuple):
    """Sources [B, S] with their lengths [B], and target inputs [B, T] with theirs."""

    source: Array
    source_lengths: Array
    targets: Array
    target_lengths: Array  # [B]: what lies behind is not compared

    @property
    def is_counted(self) -> Array:
        """Bool [B, T]."""
        found: Array = np.arange(self.targets.shape[1]) < self.target_lengths[:, None]
        return found

    def split(self, num_logits: int) -> Iterator["ForcedInputs"]:
        """Yield parts whose logits [B, T, V] fit into memory."""
        num_parts = min(len(self.targets), -(-self.targets.size * num_logits // MAX_LOGITS))
        for rows in np.array_split(np.arange(len(self.targets)), num_parts):
            yield ForcedInputs(*(array[rows] for array in self))


def seeded_samples(config: ModelConfig) -> list[ForcedInputs]:
    """Return random ids in batches of several shapes, the sentences of a batch of different lengths."""
    random = np.random.default_rng(SEED)
    samples = []
    for B, most_source, most_target in SHAPES:
        S, T = min(most_source, config.max_positions), min(most_target, config.max_positions)
        lengths = random.integers(1, S + 1, B).astype(np.int32)
        lengths[0] = S
        source = random.integers(0, config.vocab_size, (B, S))
        source[np.arange(S) >= lengths[:, None]] = 0
        targets = random.integers(0, config.num_target_tokens, (B, T))
        targets[:, 0] = config.start_id
        samples.append(ForcedInputs(source, lengths, targets, np.full(B, T)))
    return samples


def translated_samples(
    runner: GraphRunner, config: ModelConfig, sentences: Iterable[Sequence[int]]
) -> list[ForcedInputs]:
    """Return real sentences in batches, each with the graphs' own greedy translation as target."""
    samples = []
    for batch in in_batches(sentences):
        translations = runner.greedy(batch, longest_target(config, batch, MAX_TARGET_TOKENS))
        lengths = np.array([len(translation) for translation in translations])
        targets = np.full((len(batch), max(lengths)), config.eos_id)
        targets[:, 0] = config.start_id  # the decoder's inputs
        for row, translation in zip(targets, translations, strict=True):
            row[1 : len(translation)] = translation[:-1]
        samples.append(ForcedInputs(*padded(batch), targets, lengths))
    return samples


def reference_model(config: ModelConfig, state: State) -> Transformer | Recurrent:
    """Return the PyTorch model with these parameters themselves, not copies, ready to run."""
    with torch.device("meta"):
        model = build_model(config)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()}, assign=True)
    if isinstance(model, Transformer) and not config.position_table:
        model.positions = sinusoidal_positions(config.max_positions, config.d_model)
    return model.eval()


def compare(runner: GraphRunner, model: Transformer | Recurrent, samples: Iterable[ForcedInputs]) -> Parity:
    """Force every sample's target through both, one sample after the other."""
    found = [
        _Differences(0.0, 0.0, 0, 0),
        *(each for sample in samples for each in _differences(runner, model, sample)),
    ]
    largest, sums, same, positions = zip(*found, strict=True)
    num_positions = sum(positions)
    return Parity(
        largest_difference=float(np.max(largest)),  # NaN if one is
        mean_difference=sum(sums) / num_positions,
        same_best_token=sum(same) / num_positions,
        positions=num_positions,
    )


class _Differences(NamedTuple):
    """Of one position of several sentences."""

    largest: float
    at_best: float  # sum, at the reference's best tokens
    num_same: int  # sentences with the same best token, or one that is as good
    num_sentences: int


def _differences(runner: GraphRunner, model: Transformer | Recurrent, sample: ForcedInputs) -> Iterator[_Differences]:
    """Yield what is found at each position: the log-probabilities [B, V] of one are in memory at a time."""
    source, source_lengths, targets = map(torch.from_numpy, (sample.source, sample.source_lengths, sample.targets))
    with torch.inference_mode():
        states = model.decode(targets, model.encode(source, source_lengths), source_lengths)  # [B, T, D]
    all_ours = runner.forced_log_probs(sample.source, sample.source_lengths, sample.targets)
    for position, (log_probs, is_counted) in enumerate(zip(all_ours, sample.is_counted.T, strict=True)):
        with torch.inference_mode():
            reference: Array = model.log_probs(model.project(states[:, position])).numpy()[is_counted]
        ours = log_probs[is_counted]
        best = reference.argmax(-1)
        difference = _difference(ours, reference)
        at_best = np.take_along_axis(difference, best[:, None], axis=-1)
        at_our_best = np.take_along_axis(reference, ours.argmax(-1)[:, None], axis=-1)[:, 0]
        num_same = int((at_our_best >= reference.max(-1) - NEAR_TIE).sum())
        yield _Differences(
            float(difference.max(initial=0.0)), float(at_best.sum(dtype=np.float64)), num_same, len(best)
        )


def _difference(ours: Array, reference: Array) -> Array:
    """Of log-probabilities; none where both are minus infinity, as those of suppressed tokens are."""
    with np.errstate(invalid="ignore"):
        return np.where(ours == reference, np.float32(0.0), np.abs(ours - reference))


def compare_scorer(
    runner: ScorerRunner, model: Transformer, samples: Iterable[ForcedInputs], alignment: AlignmentHeads
) -> ScorerParity:
    """Force every sample's target through both; each token follows the one before it, end-of-sentence the last."""
    likelihoods, attentions = list[Array](), list[Array]()
    for sample in chain.from_iterable(whole.split(model.config.num_logits) for whole in samples):
        next_tokens = np.pad(sample.targets[:, 1:], ((0, 0), (0, 1)), constant_values=model.config.eos_id)
        found, attention = runner.score(sample.source, sample.source_lengths, sample.targets, next_tokens)
        expected, weights = reference_scores(model, sample, next_tokens, alignment)
        shown = weights.shape[1] - alignment.is_shifted  # the last row of shifted heads is nobody's
        likelihoods.append(_difference(found, expected)[sample.is_counted])
        apart = np.abs(attention - weights).sum(axis=-1) / 2
        attentions.append(apart[:, :shown][sample.is_counted[:, :shown]])
    log_probs, rows = np.concatenate(likelihoods), np.concatenate(attentions)
    return ScorerParity(
        scorer_mean_difference=float(log_probs.mean()),
        scorer_largest_difference=float(log_probs.max()),
        attention_mean_difference=float(rows.mean()) if rows.size else 0.0,
        attention_largest_difference=float(rows.max()) if rows.size else 0.0,
    )


def reference_scores(
    model: Transformer, sample: ForcedInputs, next_tokens: Array, alignment: AlignmentHeads
) -> tuple[Array, Array]:
    """Return what a scorer computes, from PyTorch: log-probabilities [B, T] and attention [B, T, S]."""
    inputs = (sample.source, sample.source_lengths, sample.targets)
    logits, weights = forced_attention(model, *map(torch.from_numpy, inputs))
    log_probs: Array = logits.log_softmax(dim=-1).numpy()
    given = np.take_along_axis(log_probs, next_tokens[..., None], axis=-1)[..., 0]
    mean = torch.stack([weights[layer, :, head] for layer, head in alignment.heads]).mean(dim=0).numpy()
    if alignment.is_shifted:
        mean = np.concatenate([mean[:, 1:], mean[:, -1:]], axis=1)
    return given, mean
