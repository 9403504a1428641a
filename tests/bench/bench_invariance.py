"""Does a sentence's translation depend on what else is in the batch?  Counts the sentences of which it does.

    python tests/bench/bench_invariance.py
    python tests/bench/bench_invariance.py --bundle BUNDLE --texts SENTENCES.en --sentences 2000

Each sentence is translated alone and, in three seeded orders, joining and leaving a running batch at random, with beams
1, 2, 4, 5 and 8 side by side.  Compared are tokens, and scores bit for bit.
"""

import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.bundle import Bundle, default_bundle_dir
from model.data import read_lines
from model.tokenizer import Tokenizer
from service.engine.cpu.runner import CpuRunner
from service.engine.job import Hypothesis, Job, JobResult, SearchParams
from service.engine.loop import EngineLoop
from tests.fakes.own_text import own_sentences

BEAM_SIZES = (1, 2, 4, 5, 8)
LARGEST_WAVE = 12  # sentences that arrive before one step


def together(runner: CpuRunner, jobs: Sequence[Job], seed: int) -> dict[int, Hypothesis]:
    """Return the best hypotheses of all jobs, in one batch that sentences join in waves."""
    order, chance = list(jobs), random.Random(seed)
    chance.shuffle(order)
    engine, found = EngineLoop(runner), dict[int, Hypothesis]()
    while order or not engine.is_idle:
        for _ in range(min(len(order), chance.randint(0, LARGEST_WAVE))):
            engine.submit(order.pop())
        found |= dict(best_of(engine))
    return found


def alone(runner: CpuRunner, jobs: Sequence[Job]) -> dict[int, Hypothesis]:
    """Return the best hypotheses of all jobs, one after the other."""
    engine, found = EngineLoop(runner), dict[int, Hypothesis]()
    for job in track(jobs, "one by one"):
        engine.submit(job)
        while not engine.is_idle:
            found |= dict(best_of(engine))
    return found


def best_of(engine: EngineLoop) -> Iterator[tuple[int, Hypothesis]]:
    """Yield the jobs that end in the engine's next step."""
    for outcome in engine.step():
        if not isinstance(outcome, JobResult):
            raise TypeError(f"sentence {outcome.job_id} failed: {outcome.message}")
        yield outcome.job_id, outcome.hypotheses[0]


def main(
    bundle: Annotated[Path | None, typer.Option(help="Default: en-de.")] = None,
    texts: Annotated[Path | None, typer.Option(help="Sentences, one a line, plain or .gz; default: our own.")] = None,
    sentences: Annotated[int, typer.Option(min=1)] = 2_000,
    orders: Annotated[int, typer.Option(min=1)] = 3,
    shortlist: Annotated[bool, typer.Option(help="Only the target tokens of the shortlist.")] = False,
) -> None:
    """Compare translations alone and in company."""
    loaded = Bundle.load(bundle or default_bundle_dir())
    tokenizer, chance = Tokenizer.load(loaded.tokenizer_path), random.Random(0)
    lines = read_lines(texts) if texts else own_sentences(sentences, seed=1)
    sources = [ids for ids in map(tokenizer.encode, dict.fromkeys(lines)) if ids][:sentences]
    limit = loaded.manifest.decoding.max_target_tokens
    jobs = [
        Job(
            id=number,
            source_ids=tuple(source),
            params=SearchParams(beam_size=chance.choice(BEAM_SIZES), max_target_tokens=limit, use_shortlist=shortlist),
        )
        for number, source in enumerate(sources)
    ]
    rows = []
    for precision in sorted(loaded.manifest.variants):
        runner = CpuRunner(loaded, precision=precision)
        reference = alone(runner, jobs)
        for seed in range(orders):
            found = together(runner, jobs, seed)
            tokens = sum(found[job.id].token_ids != reference[job.id].token_ids for job in jobs)
            scores = sum(found[job.id].score != reference[job.id].score for job in jobs)
            print(f"{precision}, order {seed}: of {len(jobs)} sentences {tokens} differ in tokens, {scores} in score")
            rows.append({"precision": precision, "order": seed, "tokens_differ": tokens, "scores_differ": scores})
    print(json.dumps({"bench": "invariance", "sentences": len(jobs), "shortlist": shortlist, "rows": rows}))


if __name__ == "__main__":
    typer.run(main)
