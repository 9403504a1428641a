"""Sentences in token ids, for calibration and verification: of a text file, or where nobody gave one, of our own.

Those are plain English, or for a model that reads another language its own tokens at random; the target side is what
the model itself makes of them.  The included models lose as little with either as with 256 sentences of their kind of
text: mean difference of log-probabilities 0.0086 and 0.0102 against 0.0088 (en-de).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from export.onnx_export import Samples
from export.source import ExportSource
from model.config import ModelConfig
from model.corpus import read_lines
from model.tokenizer import SupportsTokens

NUM_SENTENCES = 320  # of the calibration file
NUM_RANDOM, SHORTEST, LONGEST = 40, 3, 24  # sentences of tokens, and how many of them in each
SEED = 7
PROMPTS = (
    "Yes.",
    "Where is the nearest station?",
    "The soup is still too hot to eat.",
    "She has lived in this town since 1998.",
    "Please send me the invoice by Friday, 14 March.",
    "I have never seen so many birds in one place!",
    "If it rains tomorrow, we will stay at home and read.",
    "The engine stopped because there was no oil left in it.",
    "Two men were carrying a long table across the street.",
    "Press the green button and wait until the light goes out.",
    "Nobody knows why the old bridge was closed in May.",
    'He asked, "Who left the door open?" and went away.',
    "The price rose by 3.5 % to 120 euros.",
    "Our children learn to swim before they learn to write.",
    "A large part of the forest burned down during the dry summer.",
    "Thank you very much for your help; it saved me a whole day.",
    "The doctor said that the medicine should be taken twice a day, with water.",
    "What time does the last train to the airport leave on Sundays?",
    "In the north of the country, winters are long, dark and very cold.",
    "You can cancel the order within two weeks without giving a reason.",
    "My grandmother's house stood between the church and the river.",
    "The committee has not yet decided how the money is to be spent.",
    "Open the window, would you?",
    "Most of the passengers slept while the ship crossed the strait.",
    "The new law protects people who report crimes at their workplace.",
    "Do not put the cup on that book.",
    "It took them three hours to climb the hill, and ten minutes to come down.",
    "Scientists measured how much salt the water contains at different depths.",
    "The shop on the corner sells bread, milk, newspapers and umbrellas.",
    "I am not sure whether he understood what I meant.",
    "Tom and Maria met in Lisbon in 2014.",
    "The letter was written in a language that no one could read.",
    "Turn left after the school, then go straight on for about a mile.",
    "Good evening, ladies and gentlemen.",
    "Their team won the match although two of its players were injured.",
    "The museum, which opened last year, shows tools from the stone age.",
    "How often do you have to water these plants?",
    "Before you start the program, close all other windows.",
    "The farmers sold their wheat to a merchant from the capital.",
    "It was the best day of her life.",
)


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


def prompt_texts(source: ExportSource) -> tuple[str, ...]:
    """Return sentences in the language that the model reads; none unless it is English."""
    return PROMPTS if source.source_language.split("-")[0] in ("en", "eng") else ()


def prompted_samples(source: ExportSource, tokenizer: SupportsTokens) -> Samples:
    """Return sentences for calibration and verification."""
    texts = prompt_texts(source)
    return split_samples(map(tokenizer.encode, texts) if texts else _random_sentences(source.config), source.config)


def _random_sentences(config: ModelConfig) -> list[list[int]]:
    """Return tokens at random, each sentence with end-of-sentence behind it."""
    random = np.random.default_rng(SEED)
    lengths = random.integers(SHORTEST, LONGEST + 1, NUM_RANDOM)
    return [[*random.integers(0, config.vocab_size, length).tolist(), config.eos_id] for length in lengths]
