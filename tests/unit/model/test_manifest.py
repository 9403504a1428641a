"""A manifest with a wrong field is refused, and the field named."""

import json
import math

import pytest

from model.bundle import Bundle, BundleError
from model.config import USUAL_PROFILE, DecodingProfile, StopRule
from model.manifest import BUNDLE_FORMAT_VERSION, Manifest
from tests.fakes.hollow_bundle import directory, manifest

__all__ = ["directory"]


def refusal(directory, text: str) -> str:
    """Why a bundle with this manifest is refused."""
    (directory / "manifest.json").write_text(text)
    with pytest.raises(BundleError) as refused:
        Bundle.load(directory)
    return str(refused.value)


def changed(**fields: object) -> str:
    return json.dumps(json.loads(manifest("int8").to_json()) | fields)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format_version": 1}', "null", "[" * 100_000])
def test_a_malformed_manifest_is_refused(directory, text):
    assert "manifest.json" in refusal(directory, text)


@pytest.mark.parametrize("version", [0, BUNDLE_FORMAT_VERSION + 1, str(BUNDLE_FORMAT_VERSION), None])
def test_an_unknown_format_version_is_refused(directory, version):
    assert f"format_version {version!r}, this program reads (1, 2, 3)" in refusal(
        directory, changed(format_version=version)
    )


@pytest.mark.parametrize("name", ["name", "source_language", "tokenizer", "golden"])
def test_a_field_that_is_no_text_is_refused(directory, name):
    assert f"{name} is 5, it must be text" in refusal(directory, changed(**{name: 5}))


@pytest.mark.parametrize("field", ["config", "decoding", "variants", "files"])
@pytest.mark.parametrize("value", [3, [1], {"unknown": 1}])
def test_a_field_of_the_wrong_kind_is_refused(directory, field, value):
    assert "manifest.json" in refusal(directory, changed(**{field: value}))


@pytest.mark.parametrize(
    ("name", "values", "wanted"),
    [
        ("beam_size", (0, 65, 2.5, 4.0, True, "4", None), "an integer from 1 to 64"),
        ("max_target_tokens", (0, 64.5), "an integer from 1 to 2147483647"),
        ("max_source_tokens", (True, 1 << 31), "an integer from 1 to 2147483647"),
        ("reliable_source_tokens", (0, 2.5, True, 1 << 31), "an integer from 1 to 2147483647"),
        ("length_penalty", (-0.1, 9, math.nan, True, "1"), "a number from 0.0 to 5.0"),
        ("patience", (0.05, math.inf, None), "a number from 0.1 to 8.0"),
    ],
)
def test_a_decoding_default_that_no_request_could_give_is_refused(directory, name, values, wanted):
    for value in values:
        assert f"{name} is {value!r}, it must be {wanted}" in refusal(directory, changed(decoding={name: value}))


def test_a_bundle_says_how_its_searches_end_or_they_end_as_those_of_ctranslate2(directory):
    own = Manifest.from_json(changed(decoding={"stop_rule": "hf", "forced_end": True}))

    assert own.profile == DecodingProfile(stop_rule=StopRule.HF, forced_end=True)
    assert Manifest.from_json(changed(decoding={})).profile == USUAL_PROFILE
    assert "'beam' is not a valid StopRule" in refusal(directory, changed(decoding={"stop_rule": "beam"}))
    assert "forced_end is 1, it must be true or false" in refusal(directory, changed(decoding={"forced_end": 1}))
