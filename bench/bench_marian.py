"""Dragoman beside Marian and CTranslate2: one set of random weights in the shape of OPUS-MT, in Marian's own format.

    .venv-dev/bin/pip install pymarian
    .venv-dev/bin/python bench/bench_marian.py

First a small model: its translations are Marian's, word by word.  Then the large one, whose random weights never stop
by themselves: every translation has as many tokens as its source.  Each side runs on one CPU, batches take turns, and
CPU time counts, so that other work on the machine matters little.  Marian runs with the types of weights that it
recommends for CPUs; the table has the fastest.
"""

import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import ctranslate2
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from export.importers.command import import_model
from export.importers.foreign import ImportOptions
from model.bundle import Bundle
from model.config import Activation, NormPlacement, StopRule
from model.tokenizer import load_tokenizer
from service.engine.choice import cpu_flags
from service.engine.loop import EngineLoop
from service.engine.wire import EngineSpec, Job, JobResult, SchedulerConfig, SearchParams
from service.engine.worker import create_runner
from tests.parity.marian_npz_model import marian_config, write_ctranslate2, write_marian_npz

OPUS = {"d_model": 512, "d_ff": 2_048, "num_heads": 8, "num_encoder_layers": 6, "num_decoder_layers": 6}
VOCABULARY, FIRST_WORD = 58_101, 14  # FIRST_WORD: what stands before are odd words of the small model
WEIGHTS = ("intgemm8", "packed8avx512" if "avx512bw" in cpu_flags() else "packed8avx2")
WORDS = 24  # of a source
SMALL_TEXTS, SMALL_BEAMS = 200, ((1, 0.0), (4, 0.0), (4, 0.6), (6, 1.0))  # with their length penalty

Side = Callable[[list[str]], object]


def main(
    cache: Annotated[Path, typer.Option(help="Where the models are kept.")] = Path("build/bench/marian"),
    beam: Annotated[int, typer.Option(min=1)] = 4,
    turns: Annotated[int, typer.Option(min=1, help="Of each batch.")] = 5,
) -> None:
    """Compare translations, then times."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    about, console = machine.describe(1), Console(width=120, highlight=False)
    small, large = model(cache / "small", 60, {}, ("fp32",)), model(cache / "opus", VOCABULARY, OPUS, ("int8",))
    for beam_size, penalty in SMALL_BEAMS:
        equal = num_equal(small, beam_size, penalty)
        console.print(f"beam {beam_size}, length penalty {penalty}: {equal} of {SMALL_TEXTS} translations are Marian's")
    table = Table("sentences at once", "Dragoman", "Marian", "CTranslate2", "times Marian", "times CTranslate2")
    rows = []
    for size in (1, 32):
        sides = {
            "dragoman": ours(large, beam),
            "marian": fastest_marian(large, beam, size),
            "peer": theirs(large, beam),
        }
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(turns + 1):
            batch = texts(size, VOCABULARY, seed=turn)
            for name, side in sides.items():
                began = time.process_time()
                side(batch)
                if turn:  # the first one warms up
                    taken[name].append(time.process_time() - began)
        per_s = {name: size / median(seconds) for name, seconds in taken.items()}
        ratios = {name: median(map(float.__truediv__, taken[name], taken["dragoman"])) for name in ("marian", "peer")}
        rows.append({"sentences": size, "per_s": per_s, "times": ratios})
        table.add_row(str(size), *(f"{each:.2f}/s" for each in per_s.values()), *(f"{r:.2f}" for r in ratios.values()))
    console.print(table)
    print(json.dumps({"bench": "marian", **about, "beam": beam, "words": WORDS, "rows": rows}))


def model(directory: Path, vocabulary: int, sizes: dict[str, Any], precisions: tuple[str, ...]) -> Path:
    """Write one model for all three."""
    if not (directory / "bundle").exists():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        config = marian_config(vocabulary, norm_placement=NormPlacement.POST, activation=Activation.SWISH, **sizes)
        vocabularies = [str(directory.resolve() / "vocab0.yml")] * 2
        tied = {"tied-embeddings-all": True, "dim-vocabs": [vocabulary] * 2, "vocabs": vocabularies}
        write_marian_npz(directory, config, **tied)
        with (directory / "decoder.yml").open("a") as file:
            file.write("allow-unk: true\n")
        write_ctranslate2(directory, directory / "ctranslate2", config)
        options = ImportOptions(name="marian", source_language="en", target_language="de", profile=StopRule.MARIAN)
        import_model(directory, directory / "bundle", options, precisions=precisions)
    return directory


def texts(number: int, vocabulary: int, seed: int, words: int = WORDS) -> list[str]:
    """Return sentences of so many words."""
    rng = random.Random(seed)
    return [" ".join(f"w{rng.randrange(FIRST_WORD, vocabulary)}" for _ in range(words)) for _ in range(number)]


def num_equal(directory: Path, beam_size: int, penalty: float) -> int:
    """Return how many sentences get Marian's translation."""
    sources = [texts(1, 60, seed, words=1 + seed % 15)[0] for seed in range(SMALL_TEXTS)]
    mine = ours(directory, beam_size, penalty, precision="fp32", times=3)(sources)
    their = marian(directory, "model.npz", beam_size, penalty, size=1, times=3)(sources)  # a batch shares a length
    return sum(map(str.__eq__, mine, their))


def ours(
    directory: Path, beam_size: int, penalty: float = 0.0, *, precision: str = "int8", times: int = 1
) -> Callable[[list[str]], list[str]]:
    """Return our engine; a translation has at most `times` the tokens of its source."""
    bundle = Bundle.load(directory / "bundle")
    tokenizer = load_tokenizer(bundle.directory, bundle.manifest.tokenizer)
    spec = EngineSpec(bundle_dir=bundle.directory, precision=precision, scheduler=SchedulerConfig(max_rows=128))
    loop = EngineLoop(create_runner(spec), spec.scheduler)

    def translate(batch: list[str]) -> list[str]:
        for number, text in enumerate(batch):
            ids = tuple(tokenizer.encode(text))
            params = SearchParams(beam_size=beam_size, length_penalty=penalty, max_target_tokens=times * len(ids))
            loop.submit(Job(id=number, source_ids=ids, params=params._replace(stop_repetition=False)))
        found: dict[int, str] = {}
        while not loop.is_idle:
            for outcome in loop.step():
                assert isinstance(outcome, JobResult), outcome
                found[outcome.job_id] = tokenizer.decode(list(outcome.hypotheses[0].token_ids))
        return [found[number] for number in range(len(batch))]

    return translate


def marian(
    directory: Path, weights: str, beam_size: int, penalty: float = 0.0, *, size: int = 32, times: int = 1
) -> Callable[[list[str]], list[str]]:
    """Return Marian with these weights."""
    from pymarian import Translator

    vocabularies = [str(directory / "vocab0.yml")] * 2
    translator = Translator(
        models=str(directory / weights),
        vocabs=vocabularies,
        beam_size=beam_size,
        normalize=penalty,
        max_length_factor=times,
        mini_batch=size,
        maxi_batch=1,
        cpu_threads=1,
        allow_unk=True,
        quiet=True,
        quiet_translation=True,
    )
    return lambda batch: list(translator.translate(batch))


def fastest_marian(directory: Path, beam_size: int, size: int) -> Side:
    """Return Marian with the weights that are fastest on this CPU."""
    import _pymarian

    batch, cost = texts(size, VOCABULARY, seed=-1), {}
    for kind in WEIGHTS:
        weights = f"{kind}.bin"
        if not (directory / weights).exists():
            with redirect_stdout(sys.stderr):
                _pymarian.main(["convert", "-f", f"{directory}/model.npz", "-t", f"{directory}/{weights}", "-g", kind])
        side = marian(directory, weights, beam_size, size=size)
        side(batch)
        began = time.process_time()
        side(batch)
        cost[kind] = time.process_time() - began
    best = min(cost, key=cost.__getitem__)
    print(f"Marian, {size} at once: {best} of {', '.join(f'{kind} {s:.2f} s' for kind, s in cost.items())}")
    return marian(directory, f"{best}.bin", beam_size, size=size)


def theirs(directory: Path, beam_size: int) -> Side:
    """Return CTranslate2."""
    translator = ctranslate2.Translator(str(directory / "ctranslate2"), compute_type="int8", intra_threads=1)
    options = {"beam_size": beam_size, "max_decoding_length": WORDS + 1, "max_batch_size": 32}
    return lambda batch: translator.translate_batch([text.split() for text in batch], **options)


if __name__ == "__main__":
    typer.run(main)
