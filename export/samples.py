"""Sentences of a text file, in token ids, for calibration and verification.

Knows files and tokenizers; not what is done with the sentences.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from export.onnx_export import Samples
from model.config import ModelConfig
from model.corpus import read_lines
from model.tokenizer import SupportsTokens

NUM_SENTENCES = 320  # of the calibration file


def read_samples(
    path: Path | None, tokenizer: SupportsTokens, config: ModelConfig, golden: Sequence[str] = ()
) -> Samples:
    """Sentences from all over the file: four of five for calibration, the fifth for verification.

    Without a file, the golden sentences of a bundle are there for verification.
    """
    if path is None:
        return Samples(verification=[tokenizer.encode(text) for text in golden])
    lines = read_lines(path)
    stride = max(1, len(lines) // NUM_SENTENCES)
    return split_samples(map(tokenizer.encode, lines[::stride][:NUM_SENTENCES]), config)


def split_samples(sentences: Iterable[Sequence[int]], config: ModelConfig) -> Samples:
    """Use four of five sentences that the model can read for calibration, and the fifth for verification."""
    usable = [ids for ids in sentences if 0 < len(ids) <= config.max_positions]
    calibration = [ids for number, ids in enumerate(usable) if number % 5 != 4]
    return Samples(calibration=calibration, verification=usable[4::5])
