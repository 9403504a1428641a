"""Which pair of a model of several languages a request means."""

from dataclasses import replace

import pytest

from model.languages import Language
from protos import translation_pb2 as pb
from service.api.grpc.messages import encode_model
from service.client.messages import decode_models
from service.errors import NotFound
from service.models.catalogue import for_languages, index_of, languages_of
from service.records import ModelInfo
from tests.fakes.model_info import model_info

CODES = {"en": "eng_Latn", "de": "deu_Latn", "fr": "fra_Latn", "zh": "zho_Hans", "zh-Hant": "zho_Hant"}
LANGUAGES = tuple(Language(code=code, flores=flores) for code, flores in CODES.items())


@pytest.fixture
def several() -> ModelInfo:
    return replace(model_info("many"), languages=LANGUAGES)


def pair(info: ModelInfo) -> tuple[str, str]:
    return info.source_language, info.target_language


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("fr", "zh-Hant", ("fr", "zh-Hant")),
        ("fra_Latn", "zho_Hant", ("fr", "zh-Hant")),
        ("fra", "deu", ("fr", "de")),
        ("fr-CA", "zh-TW", ("fr", "zh-Hant")),
        ("", "", ("en", "de")),
        ("fr", "", ("fr", "de")),
        ("de", "", ("de", "en")),
        ("", "en", ("de", "en")),
    ],
)
def test_a_pair_is_found_by_any_of_its_names(several, source, target, expected):
    assert index_of([several], model=None, source_language=source, target_language=target) == 0
    assert pair(for_languages(several, source, target)) == expected


@pytest.mark.parametrize(("source", "target"), [("en", "en"), ("en", "es"), ("es", "")])
def test_what_the_model_does_not_translate_is_not_found_and_the_message_stays_short(several, source, target):
    with pytest.raises(NotFound, match="many from 5 to 5 languages") as caught:
        index_of([several], model=None, source_language=source, target_language=target)

    assert len(str(caught.value)) < 200


def test_a_client_is_told_every_language_by_three_codes(several):
    message = encode_model(several, several.languages)

    assert [(one.bcp47, one.flores, one.iso639_3) for one in message.languages][2:4] == [
        ("fr", "fra_Latn", "fra"),
        ("zh", "zho_Hans", "zho"),
    ]
    assert decode_models(pb.ListModelsResponse(models=[message]))[0].languages == LANGUAGES


def test_the_languages_of_a_model_of_one_pair_have_three_codes_too():
    source, target = encode_model(model_info("m"), languages_of(model_info("m"))).languages

    assert (source.bcp47, source.flores, source.is_source, source.is_target) == ("en", "eng_Latn", True, False)
    assert (target.bcp47, target.flores, target.is_source, target.is_target) == ("de", "deu_Latn", False, True)
