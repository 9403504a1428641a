"""What importers refuse, each in one line with the place, and what they make of the files around the weights."""

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.importers.ctranslate2 import read_ctranslate2
from export.importers.foreign import ForeignModelError, ImportOptions
from export.importers.language_tokens import codes_in
from export.importers.marian import read_marian
from model.config import StopRule
from model.manifest import DecodingDefaults
from tests.fakes.tiny_model import state_of, tiny_config, tiny_model
from tests.parity.ctranslate2_model import write_ctranslate2_model
from tests.parity.marian_model import write_marian
from tests.unit.export.importers.test_model_bin import model_bin, text, variable

OPTIONS = ImportOptions(source_language="en", target_language="de")


def refusal(read: Any, directory: Path, scratch: Path, options: ImportOptions = OPTIONS) -> str:
    scratch.mkdir(exist_ok=True)
    with pytest.raises(ForeignModelError) as refused:
        read(directory, options, scratch)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def change(path: Path, **settings: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer_path: Path) -> Path:
    return write_marian(tmp_path_factory.mktemp("marian"), tiny_tokenizer_path).directory


class TestMarian:
    @pytest.fixture
    def directory(self, tmp_path: Path, marian: Path) -> Path:
        return Path(shutil.copytree(marian, tmp_path / "marian"))

    def test_a_good_model_has_its_own_defaults_and_languages(self, directory, tmp_path):
        (tmp_path / "scratch").mkdir()
        source = read_marian(directory, ImportOptions(name="mine"), tmp_path / "scratch")

        assert (source.name, source.source_language, source.target_language) == ("mine", "en", "de")
        assert (source.decoding.beam_size, source.decoding.max_target_tokens) == (6, 32)
        assert source.config.suppressed_ids == (source.config.start_id,)
        assert source.tokenizer.source_suffix == ("</s>",)

    def test_the_search_is_that_of_its_generation_config(self, directory, tmp_path):
        (tmp_path / "scratch").mkdir()
        plain = read_marian(directory, OPTIONS, tmp_path / "scratch")
        eos = plain.config.eos_id
        changed: dict[str, Any] = {
            "num_beams": 3,
            "length_penalty": 0.7,
            "max_new_tokens": 20,
            "forced_eos_token_id": eos,
        }
        changed |= {"renormalize_logits": True, "early_stopping": True, "suppress_tokens": [4]}
        (directory / "generation_config.json").write_text(json.dumps(changed))
        own = read_marian(directory, OPTIONS, tmp_path / "scratch")
        other = read_marian(directory, replace(OPTIONS, profile=StopRule.MARIAN), tmp_path / "scratch")

        usual = DecodingDefaults(beam_size=6, max_target_tokens=32, stop_rule=StopRule.HF)
        assert (plain.decoding, plain.config.suppressed_keep_mass) == (usual, True)
        assert (own.decoding.beam_size, own.decoding.length_penalty, own.decoding.max_target_tokens) == (3, 0.7, 20)
        assert (own.decoding.stop_rule, own.decoding.forced_end) == (StopRule.CTRANSLATE2, True)
        assert own.config.suppressed_ids == (4, own.config.pad_id)
        assert not own.config.suppressed_keep_mass
        assert (other.decoding.stop_rule, other.decoding.forced_end) == (StopRule.MARIAN, False)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"early_stopping": "never"}, "early_stopping is 'never', only False is supported; --profile ctranslate2"),
            ({"no_repeat_ngram_size": 3}, "no_repeat_ngram_size is 3, only 0 is supported; --profile ctranslate2"),
            ({"forced_eos_token_id": 5}, "forced_eos_token_id is 5, only eos_token_id is supported"),
            ({"forced_bos_token_id": 5}, "forced_bos_token_id is 5, only None is supported"),
            ({"activation_function": "gelu_new"}, "activation_function is 'gelu_new', supported are relu"),
            ({"normalize_before": True}, "normalize_before is True, only False is supported"),
            ({"decoder_ffn_dim": 32}, "encoder_ffn_dim is 64, decoder_ffn_dim 32"),
            ({"bad_words_ids": [[1, 2]]}, "words of several tokens"),
            ({"d_model": 48}, "has shape (119, 32), its settings say (119, 48)"),
            ({"d_model": "x"}, "config.json: d_model is 'x', it must be an integer"),
            ({"decoder_layers": 1}, "tensors that are not understood: model.decoder.layers.1.encoder_attn.k_proj.bias"),
            ({"encoder_layers": 3}, "has no tensor 'model.encoder.layers.2.self_attn_layer_norm.weight'"),
            ({"decoder_start_token_id": 5_000}, "start_id is 5000"),
        ],
    )
    def test_settings_that_do_not_fit_are_refused(self, directory, tmp_path, settings, message):
        change(directory / "config.json", **settings)

        assert message in refusal(read_marian, directory, tmp_path / "scratch")

    def test_a_pickle_that_runs_code_is_refused_and_runs_nothing(self, directory, tmp_path):
        class Bomb:
            def __reduce__(self) -> tuple[Any, ...]:
                return Path.touch, (tmp_path / "exploded",)

        (directory / "model.safetensors").unlink()
        torch.save({"model.shared.weight": Bomb()}, directory / "pytorch_model.bin")
        assert "damaged, or holds more than tensors" in refusal(read_marian, directory, tmp_path / "scratch")

        (directory / "pytorch_model.bin").write_bytes(pickle.dumps({"x": Bomb()}))
        assert "damaged, or holds more than tensors" in refusal(read_marian, directory, tmp_path / "scratch")
        assert not (tmp_path / "exploded").exists()

    @pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"\x08\0\0\0\0\0\0\0{}      ", b"PK\x03\x04"])
    def test_damaged_weights_are_refused_by_name(self, directory, tmp_path, content):
        (directory / "model.safetensors").write_bytes(content)

        assert str(directory) in refusal(read_marian, directory, tmp_path / "scratch")

        (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
        assert "pytorch_model.bin" in refusal(read_marian, directory, tmp_path / "scratch")

    @pytest.mark.parametrize(
        ("vocabulary", "message"),
        [
            ({"</s>": 0, "<unk>": 0}, "have one id, 0"),
            ({"</s>": 9_999}, "has id 9999, the model has 119 rows"),
            ({"</s>": "0"}, "has id '0'"),
            ([], "is no JSON object"),
            ({"</s>": 0, "<unk>": 1}, "it belongs to another model"),
        ],
    )
    def test_vocabularies_that_do_not_fit_are_refused(self, directory, tmp_path, vocabulary, message):
        (directory / "vocab.json").write_text(json.dumps(vocabulary))

        assert message in refusal(read_marian, directory, tmp_path / "scratch")


class TestCtranslate2:
    @pytest.fixture
    def directory(self, tmp_path: Path, tiny_tokenizer_path: Path) -> Path:
        model = tiny_model(tiny_config(vocab_size=120))
        directory = write_ctranslate2_model(model.config, state_of(model), tiny_tokenizer_path, tmp_path / "model")
        (directory / "sentencepiece.model").write_bytes(tiny_tokenizer_path.read_bytes())
        return directory

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"decoder_start_token": None}, "has no decoder_start_token"),
            ({"eos_token": "<end>"}, "has no token '<end>'"),
            ({"quantization_type": 1}, "quantization_type is 1, which is not supported"),
            ({"bos_token": 3}, "bos_token is 3, it must be text"),
        ],
    )
    def test_settings_that_do_not_fit_are_refused(self, directory, tmp_path, settings, message):
        change(directory / "config.json", **settings)

        assert message in refusal(read_ctranslate2, directory, tmp_path / "scratch")

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            (["encoder/layer_0/self_attention/relative_position_keys"], "relative positions (Shaw et al. 2018)"),
            (["encoder/layer_0/self_attention/relative_attention_bias"], "a relative attention bias (T5)"),
            (["decoder/layer_0/ffn/linear_0_noact/weight"], "gated linear units"),
            (["encoder/embeddings_0/weight", "encoder/embeddings_1/weight"], "several features for each source token"),
            (["decoder/alibi"], "has decoder/alibi, which is not supported"),
        ],
    )
    def test_other_kinds_of_models_are_refused_by_name(self, tmp_path, names, message):
        (tmp_path / "model.bin").write_bytes(model_bin([variable(name, np.ones(1, np.float32)) for name in names]))

        assert message in refusal(read_ctranslate2, tmp_path, tmp_path / "scratch")

    @pytest.mark.parametrize(
        ("specification", "message"),
        [
            ("TransformerDecoderSpec", "is a language model (TransformerDecoderSpec), which has no encoder"),
            ("WhisperSpec", "is a 'WhisperSpec', supported are TransformerBase"),
        ],
    )
    def test_other_specifications_are_refused_by_name(self, tmp_path, specification, message):
        content = model_bin([variable("x", np.ones(1, np.float32))])
        (tmp_path / "model.bin").write_bytes(content.replace(text("TransformerSpec"), text(specification)))

        assert message in refusal(read_ctranslate2, tmp_path, tmp_path / "scratch")

    def test_a_variable_that_nobody_knows_is_refused(self, directory, tmp_path):
        content = (directory / "model.bin").read_bytes()
        at = content.index(text("decoder/layer_0/attention/layer_norm/beta"))
        count = content.index(text("TransformerSpec")) + len(text("TransformerSpec")) + 4
        number = int.from_bytes(content[count : count + 4], "little") + 1
        changed = content[:count] + number.to_bytes(4, "little") + content[count + 4 : at]
        changed += variable("decoder/new_idea", np.ones(3, np.float32)) + content[at:]
        (directory / "model.bin").write_bytes(changed)

        assert "variables that are not understood: decoder/new_idea" in refusal(
            read_ctranslate2, directory, tmp_path / "scratch"
        )


@pytest.mark.parametrize(
    ("tokens", "languages"),
    [
        (["a", "eng_Latn", "deu_Latn", "x_y"], ["eng_Latn", "deu_Latn"]),
        (["__en__", "__de__", "__", "en"], ["__en__", "__de__"]),
        (["en_XX", "de_DE", "a"], ["en_XX", "de_DE"]),
        (["de_DE", "fr_XX", "a"], []),  # words of any text
        (["eng_Latn", "a"], []),
    ],
)
def test_languages_of_a_vocabulary_are_its_tokens_for_them(tokens, languages):
    assert codes_in(tokens) == languages
