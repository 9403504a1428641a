"""CTranslate2 given our shortlist as its vmap.txt says only what the shortlist allows."""

from pathlib import Path

import ctranslate2
import numpy as np
import pytest

from model.config import BOS_ID, EOS_ID, UNK_ID
from model.shortlist import Shortlist
from tests.fakes.tiny_model import random_sentences, state_of, tiny_config, tiny_model
from tests.fakes.vmap import write_vmap
from tests.parity.ctranslate2_model import pieces, write_ctranslate2_model

V = 120


@pytest.fixture(scope="module")
def shortlist() -> Shortlist:
    """Five random target tokens for each source token."""
    targets = np.random.default_rng(3).integers(EOS_ID + 1, V, 5 * V)
    return Shortlist.from_links(V, np.array([UNK_ID, EOS_ID, 20]), np.repeat(np.arange(V), 5), targets)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_vmap_limits_ctranslate2_to_the_candidates_of_its_batch(
    tmp_path: Path, tiny_tokenizer_path: Path, shortlist: Shortlist, beam_size: int
) -> None:
    model = tiny_model(tiny_config(vocab_size=V), seed=2)
    directory = write_ctranslate2_model(model.config, state_of(model), tiny_tokenizer_path, tmp_path / "ctranslate2")
    names = pieces(tiny_tokenizer_path)
    write_vmap(shortlist, directory / "vmap.txt", names)
    translator = ctranslate2.Translator(str(directory), compute_type="float32", intra_threads=1)
    sources = random_sentences(model.config, lengths=(2, 3, 6, 11))

    def translate(*, use_vmap: bool) -> list[set[int]]:
        results = translator.translate_batch(
            [[names[token] for token in source] for source in sources],
            beam_size=beam_size,
            max_batch_size=1,
            max_decoding_length=20,
            use_vmap=use_vmap,
        )
        return [{names.index(piece) for piece in result.hypotheses[0]} for result in results]

    allowed = [{BOS_ID, *shortlist.candidates(source).tolist()} for source in sources]  # it always has BOS
    assert all(said <= own for said, own in zip(translate(use_vmap=True), allowed, strict=True))
    assert not all(said <= own for said, own in zip(translate(use_vmap=False), allowed, strict=True))
