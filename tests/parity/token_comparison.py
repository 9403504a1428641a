"""The engine and CTranslate2 on the same trained weights in fp32: how many sentences get the same tokens.

Not a test.  Where the tokens differ, both outputs are scored again by the PyTorch model: a near-tie, or a fault?
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from export.source import ExportSource
from export.verify import reference_model
from model.bundle import Bundle
from model.search import score
from model.tokenizer import Tokenizer
from service.engine.cpu.runner import CpuRunner
from service.engine.wire import SearchParams
from tests.fakes.engine_runs import translate
from tests.parity.ctranslate2_model import translate_with_ctranslate2, write_ctranslate2_model


@dataclass(frozen=True, slots=True)
class Difference:
    """A sentence for which the two give other tokens."""

    text: str
    ours: str
    theirs: str
    our_score: float  # by the PyTorch model
    their_score: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found."""

    num_sentences: int
    differences: tuple[Difference, ...]


def compare_with_ctranslate2(bundle_dir: Path, fp32_dir: Path, texts: Sequence[str], beam_size: int) -> Comparison:
    """Translate texts with both.

    Args:
        bundle_dir: a bundle that kept its weights; CTranslate2 and PyTorch get these.
        fp32_dir: a bundle with the fp32 graphs of the same weights, for the engine.
        texts: source sentences; blank ones are left out.
    """
    source, tokenizer = ExportSource.load(bundle_dir), Tokenizer.load(Bundle.load(bundle_dir).tokenizer_path)
    kept = [(text, ids) for text in texts if (ids := tokenizer.encode(text))]
    sources = [ids for _, ids in kept]
    ours = translate_with_engine(fp32_dir, sources, beam_size)
    with tempfile.TemporaryDirectory() as directory:
        neighbour = write_ctranslate2_model(source.config, source.state, source.tokenizer_path, Path(directory) / "ct2")
        answers = translate_with_ctranslate2(neighbour, source.tokenizer_path, sources, beam_size=beam_size)
    theirs = [answer[0][0] for answer in answers]
    model = reference_model(source.config, source.state)
    torch.set_num_threads(1)
    return Comparison(
        len(kept),
        tuple(
            Difference(text, tokenizer.decode(a), tokenizer.decode(b), score(model, ids, a), score(model, ids, b))
            for (text, ids), a, b in zip(kept, ours, theirs, strict=True)
            if a != b
        ),
    )


def translate_with_engine(bundle_dir: Path, sources: Sequence[Sequence[int]], beam_size: int) -> list[list[int]]:
    """Tokens of the best hypothesis of each source."""
    runner = CpuRunner(Bundle.load(bundle_dir), precision="fp32")
    return [list(best.token_ids) for best, *_ in translate(runner, sources, SearchParams(beam_size=beam_size))]
