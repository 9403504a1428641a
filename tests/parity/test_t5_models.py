"""Imported T5 and MADLAD models against transformers on the checkpoints that were imported."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from transformers import T5Config, T5ForConditionalGeneration, T5Tokenizer

from export.importers.command import import_model
from export.importers.foreign import ForeignModelError, ImportOptions
from export.importers.t5 import read_t5
from export.verify import reference_model
from model.tokenizer import load_tokenizer
from tests.fakes.own_text import own_sentences
from tests.parity.model_pair import SEARCHES, Pair, num_sentences, write_ctranslate2_of

SIZES: dict[str, Any] = {"d_model": 32, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 3}
BIAS = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12}
MODELS: dict[str, dict[str, Any]] = {
    "v1.0": {**SIZES, "d_kv": 16, "feed_forward_proj": "relu", "eos_token_id": 1, "pad_token_id": 0},
    "v1.1": {**SIZES, **BIAS, "d_kv": 6, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "madlad": {**SIZES, **BIAS, "d_kv": 8, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
               "pad_token_id": 1, "decoder_start_token_id": 0, "eos_token_id": 2},
}  # fmt: skip
PROMPT = "translate English to German:"
OPTIONS = {
    "v1.0": ImportOptions(source_language="en", target_language="de", source_prefix=(PROMPT,)),
    "v1.1": ImportOptions(source_language="en", target_language="de"),
    "madlad": ImportOptions(target_language="de"),
}


def write_pieces(path: Path, kind: str) -> None:
    special: dict[str, Any] = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    if kind == "madlad":
        special = {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1}
        special |= {"user_defined_symbols": ["<2en>", "<2de>", "<2zh_Hant>"]}
    with path.open("wb") as out:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([PROMPT, *own_sentences(500)]), model_writer=out, vocab_size=120, minloglevel=2,
            character_coverage=1.0, **special,
        )  # fmt: skip


def write_checkpoint(directory: Path, kind: str) -> Any:
    """Write a random model that is sure of itself, and whose sentences end at different lengths."""
    torch.manual_seed(3)
    settings = {"decoder_start_token_id": 0, "vocab_size": 131, **MODELS[kind]}
    model: Any = T5ForConditionalGeneration(T5Config(**settings))
    with torch.no_grad():
        if kind != "v1.0":
            model.lm_head.weight = torch.nn.Parameter(torch.empty(131, 32))
        for name, parameter in model.named_parameters():
            if "layer_norm" in name:
                parameter.add_(torch.randn(parameter.shape) * 0.2)
            elif "relative_attention_bias" in name:
                parameter.normal_()
            else:
                is_output = ".o." in name or ".wo." in name  # outweighs the last token, which would be repeated
                scale = model.config.d_kv**-0.5 if ".q." in name else 3.0 if is_output else 1.0
                parameter.normal_(std=0.5 if "shared" in name else 1.5 * scale * parameter.shape[1] ** -0.5)
        model.get_output_embeddings().weight[model.config.eos_token_id] *= 2.0
        if kind == "v1.0":
            model.decoder.final_layer_norm.weight.mul_(8.0)
    model.generation_config.update(max_length=25)
    model.eval().save_pretrained(directory)
    write_pieces(directory / "spiece.model", kind)
    if kind == "madlad":  # with a tokenizer.json that has the languages
        T5Tokenizer.from_pretrained(directory, extra_ids=0).save_pretrained(directory)
    return model


@pytest.fixture(scope="module", params=MODELS)
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def checkpoint(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("t5") / "theirs"


@pytest.fixture(scope="module")
def pair(kind: str, checkpoint: Path) -> Pair:
    theirs = write_checkpoint(checkpoint, kind)
    (checkpoint.parent / "scratch").mkdir()
    source = read_t5(checkpoint, OPTIONS[kind], checkpoint.parent / "scratch")
    bundle = import_model(checkpoint, checkpoint.parent / "bundle", OPTIONS[kind])
    tokenizer = load_tokenizer(bundle.directory, bundle.manifest.tokenizer)
    sources = [tokenizer.encode(text) for text in own_sentences(num_sentences(40), seed=4)]
    return Pair(bundle, reference_model(source.config, source.state), theirs, sources)


def test_encoder_states_and_log_probabilities_are_those_of_transformers(pair):
    pair.require_log_probs_of_transformers()


@pytest.mark.parametrize(("beam_size", "early_stopping"), SEARCHES)
@pytest.mark.timeout(7200)
def test_tokens_are_those_of_generate(pair, beam_size, early_stopping):
    pair.require_tokens_of_generate(beam_size, early_stopping=early_stopping)


def test_tokens_are_those_of_ctranslate2(pair, tmp_path):
    directory = write_ctranslate2_of(pair.theirs, tmp_path / "neighbour")
    for beam_size in (1, 4):
        pair.require_tokens_of_ctranslate2(directory, beam_size)


@pytest.mark.parametrize("kind", ["v1.0"], indirect=True)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feed_forward_proj": "gated-mish"}, "feed_forward_proj is 'gated-mish', supported are relu"),
        ({"relative_attention_num_buckets": 0}, "relative_attention_num_buckets is 0, it must be from 4"),
        ({"num_heads": 4}, "has shape"),
        ({"forced_bos_token_id": 5}, "forced_bos_token_id is 5, only None is supported"),
        ({"tie_word_embeddings": False}, "no tensor 'lm_head.weight', and tie_word_embeddings is false"),
    ],
)
def test_what_is_not_understood_is_refused(pair, checkpoint, tmp_path, change, message):
    shutil.copytree(checkpoint, tmp_path / "theirs")
    settings = json.loads((checkpoint / "config.json").read_text()) | change
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(settings))

    with pytest.raises(ForeignModelError, match=message):
        read_t5(tmp_path / "theirs", OPTIONS["v1.0"], tmp_path)
