"""Jobs with options that change logits and candidates: some of them at random, and phrases that are given in tokens."""

from collections.abc import Sequence

import numpy as np

from model.config import EOS_ID
from model.spelling import ANYWHERE, Spellings
from service.engine.wire import Job


def suppressing(phrases: Sequence[Sequence[int]]) -> Spellings:
    """As `SearchParams.suppressed` says it: each phrase a path of its own."""
    nodes: list[list[tuple[int, int]]] = [[], []]
    for phrase in phrases:
        node = ANYWHERE
        for token in phrase[:-1]:
            nodes[node].append((token, len(nodes)))
            node = len(nodes)
            nodes.append([])
        nodes[node].append((phrase[-1], ANYWHERE))
    return tuple(map(tuple, nodes))


def steered(job: Job, rng: np.random.Generator, num_tokens: int) -> Job:
    """The job with some of the options, and half the time with a prefix; one of five draws its tokens.

    `num_tokens` is the size of the vocabulary.
    """
    samples, has = rng.random() < 0.2, rng.random(6) < 0.4
    beam_size = 1 if samples else job.params.beam_size

    def tokens(*shape: int) -> list[list[int]]:
        few: list[list[int]] = rng.integers(EOS_ID + 1, num_tokens, shape).tolist()
        return few

    params = job.params._replace(
        beam_size=beam_size,
        num_hypotheses=int(rng.integers(1, beam_size + 1)),
        max_target_tokens=max(5, job.params.max_target_tokens),
        repetition_penalty=float(rng.choice([1.2, 3.0])) if has[0] else 1.0,
        no_repeat_ngram_size=int(rng.integers(1, 4)) if has[1] else 0,
        min_target_tokens=int(rng.integers(1, 5)) if has[2] else 0,
        suppressed=suppressing(tokens(4, 1) + tokens(8, 2)) if has[3] else (),
        sampling_top_k=int(rng.integers(1, 30)) if samples else 0,
        sampling_top_p=float(rng.choice([0.3, 0.9, 1.0])),
        sampling_temperature=float(rng.choice([0.5, 1.0, 3.0])),
        sampling_seed=int(rng.integers(2**63)),
        return_alternatives=bool(has[4]) and not samples,
    )
    return job._replace(params=params, prefix_ids=tuple(tokens(1, int(rng.integers(1, 5)))[0]) if has[5] else ())
