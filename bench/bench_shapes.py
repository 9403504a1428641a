"""Models of the sizes that people have, beside CTranslate2: import, memory, seconds a sentence.

    python bench/bench_shapes.py --shape opus          # OPUS-MT: 6+6 layers, width 512, 58,101 tokens
    python bench/bench_shapes.py --shape nllb          # NLLB-200's distilled 600M: 12+12, width 1,024, 256,206

Weights are seeded random numbers in half precision, in MarianMT's layout; NLLB itself has its norms before the
sublayers, and languages, which cost the same.  Such a model never ends a sentence, so that both sides are made to write
the same number of tokens.  The import runs as a process of its own, whose anonymous memory is sampled, less that of the
same program before it reads a model.  Memory of engines is their share of what is resident (PSS), weights that they
share counted once, after they have translated; CTranslate2's is what its process gained.  Sentences are timed one at a
time on one thread, both sides in turns; ratios are CTranslate2's time over ours.  Prints a table and, last, one line of
JSON.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from bench.race.dragoman import EngineProcesses, EngineSetting, OurSide
from bench.race.peer_ctranslate2 import COMPUTE_TYPES, PeerSetting, TheirSide, call_options, open_translator
from bench.race.regimes import one_at_a_time
from bench.race.text import Sentence
from export.importers.foreign import ImportOptions
from export.importers.marian import read_marian
from model.bundle import Bundle, default_bundle_dir
from model.pieces import load_processor
from model.tokenizer import load_tokenizer
from service.engine.wire import EngineSpec, SearchParams
from tests.fakes.own_text import own_sentences
from tests.parity.ctranslate2_model import numbered, write_ctranslate2_model

ROOT = Path(__file__).resolve().parents[1]
BEAMS = (1, 4)
NUM_ENGINES = (1, 2, 4)
BASELINE = "import export.importers.command, time; time.sleep(1)"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a checkpoint."""

    layers: int  # of encoder and decoder each
    width: int
    inner: int
    heads: int
    vocabulary: int
    activation: str
    sentences: int  # that are timed


SHAPES = {
    "opus": ModelShape(6, 512, 2_048, 8, 58_101, "swish", 20),
    "nllb": ModelShape(12, 1_024, 4_096, 16, 256_206, "relu", 4),
}


def write_checkpoint(directory: Path, shape: ModelShape) -> None:
    """Write a checkpoint with random weights, and a tokenizer that has the included one's pieces and made-up ones."""
    random, tensors = np.random.default_rng(1), dict[str, np.ndarray[Any, Any]]()
    D, F = shape.width, shape.inner

    def linear(name: str, outputs: int, inputs: int) -> None:
        weight = random.standard_normal((outputs, inputs), np.float32) * np.float32((2 / (outputs + inputs)) ** 0.5)
        if name.endswith(("out_proj", "fc2")):  # the model repeats its last token: else nearly all tokens are as likely
            weight *= np.float32(0.1)
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = weight.astype(np.float16), np.zeros(outputs, np.float16)

    def norm(name: str) -> None:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = np.ones(D, np.float16), np.zeros(D, np.float16)

    table = (random.standard_normal((shape.vocabulary, D), np.float32) * np.float32(D**-0.5)).astype(np.float16)
    table[-1] = 0  # <pad>
    tensors["final_logits_bias"] = np.zeros((1, shape.vocabulary), np.float16)
    tensors["model.shared.weight"] = table
    for stack in ("encoder", "decoder"):
        for number in range(shape.layers):
            name = f"model.{stack}.layers.{number}"
            for attention in ("self_attn", "encoder_attn")[: 1 + (stack == "decoder")]:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{name}.{attention}.{part}", D, D)
                norm(f"{name}.{attention}_layer_norm")
            linear(f"{name}.fc1", F, D)
            linear(f"{name}.fc2", D, F)
            norm(f"{name}.final_layer_norm")
    save_file(tensors, directory / "model.safetensors")
    settings = {
        "model_type": "marian",
        "activation_function": shape.activation,
        "d_model": D,
        "vocab_size": shape.vocabulary,
        "eos_token_id": 0,
        "pad_token_id": shape.vocabulary - 1,
        "decoder_start_token_id": shape.vocabulary - 1,
        "scale_embedding": True,
        "max_position_embeddings": 512,
    }
    for stack in ("encoder", "decoder"):
        settings |= {f"{stack}_layers": shape.layers, f"{stack}_ffn_dim": F, f"{stack}_attention_heads": shape.heads}
    (directory / "config.json").write_text(json.dumps(settings))
    pieces = default_bundle_dir() / "shared.spm"
    processor = load_processor(pieces)
    known = [processor.id_to_piece(number) for number in range(4, processor.get_piece_size())]
    tokens = ["</s>", "<unk>", *known]
    tokens += [f"made-up-{number}" for number in range(len(tokens), shape.vocabulary - 1)] + ["<pad>"]
    (directory / "vocab.json").write_text(json.dumps({token: number for number, token in enumerate(tokens)}))
    for name in ("source.spm", "target.spm"):
        (directory / name).write_bytes(pieces.read_bytes())


def anonymous_mb(pid: int | str) -> float:
    """Return the anonymous memory of a process, 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1e3 for line in lines if line.startswith("RssAnon")), 0.0)


def shared_mb(pid: int | str) -> float:
    """Return a process' share of the memory that is resident."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("Pss:"))


def watched(arguments: Sequence[str]) -> tuple[float, float]:
    """Run a program; return its seconds and the most anonymous memory that it had.

    Raises:
        CalledProcessError: it failed.
    """
    began, peak = time.perf_counter(), 0.0
    with subprocess.Popen([sys.executable, *arguments], cwd=ROOT) as process:
        while process.poll() is None:
            peak = max(peak, anonymous_mb(process.pid))
            time.sleep(0.05)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, arguments)
    return time.perf_counter() - began, peak


def our_memory(bundle: Bundle, precision: str, params: SearchParams, sentences: Sequence[Sentence], n: int) -> float:
    """Megabytes of n engine processes that have translated."""
    spec = EngineSpec(bundle_dir=bundle.directory, precision=precision, shared_weights=True)
    with closing(EngineProcesses(spec, params, EngineSetting(engines=n))) as engines:
        engines.translate([*sentences[:2]] * n)
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return sum(map(shared_mb, children))


def their_memory(directory: Path, precision: str, params: SearchParams, sentences: Sequence[Sentence], n: int) -> float:
    """Megabytes of a process with n translators that share weights, less those of the process before it loads them."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_translate_and_tell, args=(there, directory, precision, params, sentences, n))
    process.start()
    found: float = here.recv()
    process.join()
    return found


def _translate_and_tell(
    there: Any, directory: Path, precision: str, params: SearchParams, sentences: Sequence[Sentence], n: int
) -> None:
    before = shared_mb("self")
    setting = PeerSetting(compute_type=COMPUTE_TYPES[precision][0], inter_threads=n)
    translator = open_translator(directory, setting)
    pieces = [sentence.pieces for sentence in [*sentences[:2]] * n]
    translator.translate_batch(pieces, max_batch_size=1, **call_options(params))
    there.send(shared_mb("self") - before)


def prepare(shape: ModelShape, place: Path, precisions: Sequence[str]) -> tuple[Bundle, Path, dict[str, float]]:
    """Return the bundle, CTranslate2's model, and what the import took; both are made of the same checkpoint."""
    checkpoint, bundle = place / "checkpoint", place / "bundle"
    checkpoint.mkdir()
    write_checkpoint(checkpoint, shape)
    languages = ["--source-language", "en", "--target-language", "de"]
    chosen = [part for precision in precisions for part in ("--precision", precision)]
    _, before = watched(["-c", BASELINE])
    seconds, peak = watched(["-m", "export", "import", str(checkpoint), str(bundle), *languages, *chosen])
    (place / "scratch").mkdir()
    options = ImportOptions(source_language="en", target_language="de")
    source = read_marian(checkpoint, options, place / "scratch")
    write_ctranslate2_model(source.config, source.state, None, place / "ctranslate2")
    halves = 2 * sum(array.size for array in source.state.values()) / 1e6
    figures = {"import_s": seconds, "import_mb": peak - before, "fp16_mb": halves, "share": (peak - before) / halves}
    return Bundle.load(bundle), place / "ctranslate2", figures


def measure(
    bundle: Bundle, ctranslate2_dir: Path, precision: str, sentences: Sequence[Sentence], num_tokens: int
) -> dict[str, float]:
    """Return memory, and seconds a sentence at each beam size."""
    params = SearchParams(beam_size=4, max_target_tokens=num_tokens, min_target_tokens=num_tokens)
    found: dict[str, float] = {}
    for n in NUM_ENGINES:
        found[f"our_mb_{n}"] = our_memory(bundle, precision, params, sentences, n)
        found[f"their_mb_{n}"] = their_memory(ctranslate2_dir, precision, params, sentences, n)
    ids = {name: number for number, name in enumerate(numbered(bundle.manifest.config.num_target_tokens))}
    for beam in BEAMS:
        of_beam = params._replace(beam_size=beam)
        ours = OurSide(bundle, precision, of_beam, [(1, 1)])
        theirs = TheirSide(ctranslate2_dir, ids, precision, of_beam, [(1, 1)])
        with closing(ours.open(ours.usual)) as one, closing(theirs.open(theirs.usual)) as other:
            one_at_a_time(one, other, sentences[:2])
            turns = one_at_a_time(one, other, sentences[2:])
        record = turns.record()
        found |= {
            f"our_s_{beam}": record["dragoman_p50_ms"] / 1e3,
            f"their_s_{beam}": record["peer_p50_ms"] / 1e3,
            f"speedup_{beam}": record["speedup"],
            f"tokens_{beam}": record["dragoman_tokens"],
            f"their_tokens_{beam}": record["peer_tokens"],
        }
    return found


def main(
    shape: Annotated[str, typer.Option(help=", ".join(SHAPES))] = "opus",
    precision: Annotated[list[str] | None, typer.Option(help="int8 and fp32; may be repeated.")] = None,
    num_tokens: Annotated[int, typer.Option(min=1, help="Target tokens of each sentence.")] = 24,
) -> None:
    """Import a model of a real shape with random weights, and compare it with CTranslate2."""
    precisions, about = precision or ["int8", "fp32"], machine.describe(1)
    chosen = SHAPES[shape]
    (ROOT / "build").mkdir(exist_ok=True)  # on a disk: temporary files can be in memory
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        bundle, ctranslate2_dir, figures = prepare(chosen, Path(name), precisions)
        encode = load_tokenizer(bundle.directory, bundle.manifest.tokenizer).encode
        encoded = [tuple(encode(text)) for text in own_sentences(chosen.sentences + 2)]
        sentences = [Sentence(ids, [str(token) for token in ids]) for ids in encoded]
        rows = {each: measure(bundle, ctranslate2_dir, each, sentences, num_tokens) for each in precisions}
    table = Table("", *rows, title=f"{shape}: " + ", ".join(f"{key} {value:,.1f}" for key, value in figures.items()))
    for key in next(iter(rows.values())):
        table.add_row(key, *(f"{row[key]:,.3f}" for row in rows.values()))
    Console(width=120).print(table)
    print(json.dumps({"bench": "shapes", "shape": shape, **about, **figures, "num_tokens": num_tokens, "rows": rows}))


if __name__ == "__main__":
    typer.run(main)
