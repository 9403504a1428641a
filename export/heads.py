"""Which cross-attention heads of a model align best, judged by a statistical alignment of parallel text.

The judge is IBM Model 1 (Brown et al. 1993) with a preference for the diagonal (Dyer et al. 2013), over the model's own
tokens, learnt in both directions; links that both directions have count as right.  It knows no attention, and the heads
know no co-occurrence, so that where they agree, both are likely right.

Axes: L decoder layers, H heads, T target, S source.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from export.builder import Array
from model.config import ModelConfig
from model.manifest import AlignmentHeads
from model.transformer import Transformer, forced_attention

NUM_MEASURED = 500  # sentences that the heads are judged on
_ITERATIONS = 5
_TENSION = 4.0  # exp(-tension * distance from the diagonal): where fast_align begins, and near where it ends
_NULL_SHARE = 0.08  # of a token that has no counterpart, as in fast_align
_SMALLEST_GAIN = 1e-3  # of F1, for one more head


class TokenPair(NamedTuple):
    """A sentence and its translation in token ids, both without end-of-sentence."""

    source: Sequence[int]
    target: Sequence[int]


def usual_heads(config: ModelConfig) -> AlignmentHeads:
    """Return all heads of the layer before the last, which align best where nothing was measured (Garg et al. 2019)."""
    layer = max(0, config.num_decoder_layers - 2)
    return AlignmentHeads(heads=tuple((layer, head) for head in range(config.num_heads)))


def choose_heads(model: Transformer, pairs: Sequence[TokenPair]) -> AlignmentHeads:
    """Return the heads whose mean, added one after the other, agrees best with the statistical alignment of `pairs`.

    Raises:
        ValueError: there is no pair to learn from.
    """
    if not pairs:
        raise ValueError("there is no pair of sentences to judge the attention heads on; give parallel text")
    stride = max(1, len(pairs) // NUM_MEASURED)
    numbers = list(range(0, len(pairs), stride))[:NUM_MEASURED]
    gold = intersections(pairs, numbers)
    attention = [_weights(model, pairs[number]) for number in numbers]
    best = AlignmentHeads(heads=())
    for is_shifted in (False, True):
        rows = [one[:, :, 1:, :-1] if is_shifted else one[:, :, :-1, :-1] for one in attention]  # [L, H, T, S]
        found = _add_heads(rows, gold)
        if found.agreement > best.agreement:
            best = AlignmentHeads(
                heads=found.heads, is_shifted=is_shifted, agreement=found.agreement, pairs=len(numbers)
            )
    return best


def _add_heads(rows: Sequence[Array], gold: Sequence[Array]) -> AlignmentHeads:
    """Return the heads that are found when the best one is added to those before it, as long as that gains."""
    num_layers, num_heads = rows[0].shape[:2]
    left = [(layer, head) for layer in range(num_layers) for head in range(num_heads)]
    chosen, sums, reached = list[tuple[int, int]](), [np.zeros(one.shape[2:], np.float32) for one in rows], 0.0
    while left:
        scores = {
            each: agreement([total + one[each] for total, one in zip(sums, rows, strict=True)], gold) for each in left
        }
        best = max(scores, key=scores.__getitem__)
        if scores[best] < reached + _SMALLEST_GAIN:
            break
        reached = scores[best]
        sums = [total + one[best] for total, one in zip(sums, rows, strict=True)]
        chosen.append(best)
        left.remove(best)
    return AlignmentHeads(heads=tuple(sorted(chosen)), agreement=round(reached, 4))


def agreement(attention: Iterable[Array], gold: Iterable[Array]) -> float:
    """Return the F1 of each target token's best source token, of matrices [T, S], with the links [T, S] that hold."""
    num_same = num_links = num_gold = 0
    for weights, links in zip(attention, gold, strict=True):
        best = weights.argmax(axis=1)
        is_linked = links.any(axis=1)  # of other tokens nothing is known
        num_same += int(links[np.arange(len(best)), best].sum())
        num_links += int(is_linked.sum())
        num_gold += int(links.sum())
    return 2 * num_same / max(1, num_links + num_gold)


@torch.inference_mode()
def _weights(model: Transformer, pair: TokenPair) -> Array:
    """[L, H, T + 1, S + 1], both sides with end-of-sentence."""
    source = [*pair.source, model.config.eos_id]
    inputs = torch.tensor([[model.config.start_id, *pair.target]])
    _, weights = forced_attention(model, torch.tensor([source]), torch.tensor([len(source)]), inputs)
    return np.asarray(weights[:, 0].numpy())


def intersections(pairs: Sequence[TokenPair], numbers: Iterable[int]) -> list[Array]:
    """Return which tokens both directions link, bool [T, S], in the pairs with these numbers."""
    numbers = list(numbers)
    forward = _best_sources(pairs, numbers)
    backward = _best_sources([TokenPair(target, source) for source, target in pairs], numbers)
    found = []
    for number, of_target, of_source in zip(numbers, forward, backward, strict=True):
        source, target = pairs[number]
        links = np.zeros((len(target), len(source)), bool)
        for position, chosen in enumerate(of_target):
            links[position, chosen] = chosen >= 0 and of_source[chosen] == position
        found.append(links)
    return found


def _best_sources(pairs: Sequence[TokenPair], numbers: Iterable[int]) -> list[list[int]]:
    """Learn Model 1 from all pairs; return each target token's likeliest source position, -1 for none, in some."""
    cells = [_cells(pair) for pair in pairs]
    words = np.concatenate([cell.words for cell in cells])
    prior = np.concatenate([cell.prior for cell in cells])
    rows = np.repeat(np.arange(sum(len(pair.target) for pair in pairs)), [n for c in cells for n in c.row_lengths])
    keys, entry = np.unique(words, return_inverse=True)
    source_of_key = keys >> 32
    probability = np.ones(len(keys))
    for _ in range(_ITERATIONS):
        share = probability[entry] * prior
        share /= np.bincount(rows, share)[rows]
        counts = np.bincount(entry, share, minlength=len(keys))
        _, of_source = np.unique(source_of_key, return_inverse=True)
        probability = counts / np.bincount(of_source, counts)[of_source]
    begins = np.cumsum([0, *(len(cell.words) for cell in cells)])
    found = []
    for number in numbers:
        num_targets = len(pairs[number].target)
        here = slice(begins[number], begins[number + 1])
        scores = (probability[entry[here]] * prior[here]).reshape(num_targets, -1)  # [T, 1 + S]: no counterpart first
        found.append((scores.argmax(axis=1) - 1).tolist())
    return found


class _Cells(NamedTuple):
    """The table [T, 1 + S] of a pair, row by row; its first column stands for no counterpart."""

    words: Array  # source token << 32 | target token
    prior: Array
    row_lengths: list[int]


def _cells(pair: TokenPair) -> _Cells:
    source, target = np.array(pair.source), np.array(pair.target)
    S, T = len(source), len(target)
    distance = np.abs(np.arange(1, S + 1)[None] / S - np.arange(1, T + 1)[:, None] / T)  # [T, S]
    near = np.exp(-_TENSION * distance)
    near *= (1 - _NULL_SHARE) / near.sum(axis=1, keepdims=True)
    prior = np.concatenate([np.full((T, 1), _NULL_SHARE), near], axis=1)
    words = (np.concatenate([[0], source])[None] << 32) | target[:, None]
    return _Cells(words.ravel(), prior.ravel(), [S + 1] * T)
