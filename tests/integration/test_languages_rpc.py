"""Texts of several languages in one call, and pairs without a model."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from protos import translation_pb2 as pb
from service.client.client import Client
from tests.fakes.calls import Calls, calling, code_of, eventually, failure
from tests.fakes.echo_bundle import ModelRepository
from tests.fakes.server_process import ServerProcess, start

ENGLISH, GERMAN, FRENCH = "The cat sleeps.", "Die Katze schnurrt laut.", "Le chat dort dans la cuisine."
DETECT = "/dragoman.v1.TranslationService/DetectLanguage"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """English to German, and French and Italian to English."""
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    for name in ("en-de", "fr-en", "it-en-GB"):
        source, _, target = name.partition("-")
        repository.put(name, "1", languages=(source, target))
    return repository.directory


@pytest.fixture(scope="module")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with start(None, tmp_path_factory.mktemp("server"), DRAGOMAN_MODELS__DIRECTORY=str(models)) as server:
        yield server


async def detected(calls: Calls, *texts: str) -> list[str]:
    request = pb.DetectLanguageRequest(texts=texts).SerializeToString()
    answer = pb.DetectLanguageResponse.FromString(await calls.method(DETECT)(request, timeout=120.0))
    return [one.language for one in answer.languages]


async def test_texts_of_one_call_go_to_the_models_of_their_languages(server):
    async with calling(server.address) as calls:
        answer = await calls.translate(FRENCH, ENGLISH, "1,299.99")

        assert [item.hypotheses[0].text for item in answer.translations] == [FRENCH, ENGLISH, "1,299.99"]
        assert [item.detected_language for item in answer.translations] == ["fr", "en", ""]
        assert answer.translations[0].detection_confidence > 0.9
        assert (answer.model, answer.model_version) == ("fr-en,en-de", "1,1")


async def test_pair_without_a_model_goes_through_a_third_language(server):
    async with calling(server.address) as calls:
        answer = await calls.translate(FRENCH, source_language="fr-CH", target_language="de")
        (translation,) = answer.translations

        assert (answer.model, translation.pivot_language) == ("fr-en+en-de", "en")
        assert (translation.hypotheses[0].text, len(translation.segments)) == (FRENCH, 0)
        mixed = await calls.translate(ENGLISH, FRENCH, target_language="de-AT")
        assert [item.pivot_language for item in mixed.translations] == ["", "en"]


async def test_metrics_count_both_models_and_no_label_joins_their_names(server: ServerProcess):
    def tokens(model: str) -> float:
        return server.metric("dragoman_tokens_total", model=model, direction="source")

    before = tokens("fr-en"), tokens("en-de")
    async with calling(server.address) as calls:
        await calls.translate(FRENCH, source_language="fr", target_language="de")

    await eventually(lambda: tokens("fr-en") > before[0] and tokens("en-de") > before[1])
    await eventually(lambda: server.metric("dragoman_requests_total", model="_other", code="OK") >= 1.0)
    assert "fr-en+en-de" not in server.get("/metrics")[1]


async def test_detect_language(server):
    async with calling(server.address) as calls:
        assert await detected(calls, FRENCH, ENGLISH, "Il gatto dorme in cucina.", "42") == ["fr", "en", "it", ""]
        assert await code_of(detected(calls)) is grpc.StatusCode.INVALID_ARGUMENT
        error = await failure(calls.method(DETECT)(b"\x0a\x01\xff", timeout=120.0))
        assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "texts[0] is not valid UTF-8")


async def test_included_models_translate_a_mixed_request_each_text_from_its_language(tmp_path):
    with start(None, tmp_path, DRAGOMAN_ENGINE__RUNNER_FACTORY="") as server, Client(server.address) as client:
        result = client.translate(["The cat sleeps.", "Der Hund schläft.", "42", "Two children play in the garden."])
        named = [client.translate(["Hi."], source_language=source).model for source in ("", "de")]
        listed = [model.name for model in client.models()]

    languages = [translation.detected_language for translation in result.translations]
    texts = [translation.text for translation in result.translations]
    assert languages == ["en", "de", "", "en"]
    assert (named, listed) == (["en-de", "de-en"], ["en-de", "de-en"])
    assert (result.model, texts[0], texts[1]) == ("en-de,de-en", "Die Katze schläft.", "The dog is sleeping.")
    assert "Kinder" in texts[3]
