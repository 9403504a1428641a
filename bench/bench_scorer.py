"""What links and scores cost: a pass of the scorer beside a run of the encoder and beside the translation itself.

    python bench/bench_scorer.py [--bundle model/pretrained/en-de] [--rounds 20]

In the loop of an engine with one thread, without texts and processes: so many sentences are translated with beam 4, and
then their translations are scored.  The two are timed in turn; the table has medians over the rounds, also of the
ratios.  To score includes a run of the encoder for each sentence, as in the server; "scorer" is the pass alone.
"""

import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from model.bundle import Bundle, default_bundle_dir
from model.tokenizer import Tokenizer
from service.engine.cpu.runner import CpuRunner
from service.engine.loop import EngineLoop
from service.engine.wire import Job, JobResult, SearchParams, StepStats
from tests.fakes.engine_runs import run
from tests.fakes.own_text import own_sentences

BUNDLE = default_bundle_dir()
BATCHES = (1, 8, 32)
PARAMS = SearchParams(beam_size=4, max_target_tokens=100)


def timed(loop: EngineLoop, jobs: Sequence[Job]) -> tuple[list[JobResult], float, StepStats]:
    """Results in order, seconds, and what the engine has counted."""
    began = time.perf_counter()
    outcomes = run(loop, jobs)
    elapsed_s = time.perf_counter() - began
    results = [outcomes[job.id] for job in jobs]
    return [result for result in results if isinstance(result, JobResult)], elapsed_s, loop.take_stats()


def measure(runner: CpuRunner, sources: Sequence[Sequence[int]], rounds: int) -> dict[str, float]:
    """Medians: milliseconds for all sentences together, and ratios."""
    loop, found = EngineLoop(runner), list[dict[str, float]]()
    searches = [Job(id=number, source_ids=tuple(source), params=PARAMS) for number, source in enumerate(sources)]
    for number in range(rounds + 1):
        results, translate_s, _ = timed(loop, searches)
        pairs = [
            job._replace(scored_ids=result.hypotheses[0].token_ids, params=PARAMS._replace(beam_size=1))
            for job, result in zip(searches, results, strict=True)
        ]
        _, both_s, stats = timed(loop, pairs)
        encoder_s, scorer_s = sum(stats.encode_s), sum(stats.score_s)
        if number:  # the first round warms up
            found.append(
                {
                    "translate_ms": 1e3 * translate_s,
                    "both_ms": 1e3 * both_s,
                    "encoder_ms": 1e3 * encoder_s,
                    "scorer_ms": 1e3 * scorer_s,
                    "scorer_to_encoder": scorer_s / encoder_s,
                    "both_to_translate": both_s / translate_s,
                }
            )
    return {name: round(statistics.median(one[name] for one in found), 3) for name in found[0]}


def main(
    bundle: Annotated[Path, typer.Option(help="With a scorer.")] = BUNDLE,
    rounds: Annotated[int, typer.Option(min=1)] = 20,
) -> None:
    """Compare the scorer with the encoder and with a translation."""
    loaded = Bundle.load(bundle)
    runner, tokenizer = CpuRunner(loaded), Tokenizer.load(loaded.tokenizer_path)
    sources = [tokenizer.encode(text) for text in own_sentences(max(BATCHES))]
    columns = ("translate, ms", "encoder + scorer, ms", "encoder, ms", "scorer, ms", "scorer / encoder", "share")
    title = f"{loaded.manifest.name} {loaded.manifest.version}, int8, one thread"
    table, rows = Table("sentences", *columns, title=title), []
    for size in BATCHES:
        rows.append({"sentences": size, **measure(runner, sources[:size], rounds)})
        table.add_row(*(f"{value:g}" for value in rows[-1].values()))
    Console(width=120).print(table)
    print(json.dumps({"bench": "scorer", "machine": machine.describe(1), "rows": rows}))


if __name__ == "__main__":
    typer.run(main)
