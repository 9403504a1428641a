"""The same weights in CTranslate2 give the same words with the same scores: two implementations that share no code."""

from pathlib import Path

import pytest

from export.linear import FloatProducts
from export.onnx_export import write_graphs
from model.config import EOS_ID, NormPlacement
from tests.fakes.tiny_model import random_sentences, state_of, tiny_config, tiny_model
from tests.parity.ctranslate2_model import translate_with_ctranslate2, write_ctranslate2_model

MAX_TOKENS = 15
SCORE_TOLERANCE = 1e-4  # summed log-probability of up to 15 tokens (measured: 1e-5)


@pytest.mark.parametrize("placement", list(NormPlacement))
def test_greedy_search_gives_the_same_tokens_and_scores(
    tmp_path: Path, tiny_tokenizer_path: Path, placement: NormPlacement
) -> None:
    model = tiny_model(tiny_config(placement, vocab_size=120), seed=2)
    state, sources = state_of(model), random_sentences(model.config, lengths=(2, 3, 6, 11, 20))
    runner, _ = write_graphs(model.config, state, FloatProducts(), tmp_path / "fp32")
    theirs = translate_with_ctranslate2(
        write_ctranslate2_model(model.config, state, tiny_tokenizer_path, tmp_path / "ctranslate2"),
        tiny_tokenizer_path,
        sources,
        beam_size=1,
        max_decoding_length=MAX_TOKENS,
        length_penalty=0,
    )

    for source, [(tokens, score)] in zip(sources, theirs, strict=True):
        _, steps = runner.greedy(source, MAX_TOKENS)
        ours = [int(step["candidate_ids"].item()) for step in steps]
        assert [token for token in ours if token != EOS_ID] == tokens
        assert sum(step["candidate_scores"].item() for step in steps) == pytest.approx(score, abs=SCORE_TOLERANCE)
