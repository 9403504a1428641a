"""Which model and which of its pairs a request means, and what is told of versions that come and go."""

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from model.languages import Language
from protos import translation_pb2 as pb
from service.api.grpc.messages import encode_model
from service.client.messages import decode_models
from service.config import LimitsConfig, ServerConfig
from service.errors import NotFound
from service.models.catalogue import for_languages, index_of, languages_of
from service.models.registry import Registry
from service.models.repository import BundleCandidate
from service.models.version import ModelState
from service.records import ModelInfo
from service.telemetry.metrics import Metrics
from tests.fakes.books import sample_of
from tests.fakes.model_info import model_info
from tests.fakes.repository_in_memory import FakeModel, idle_engines, registry_of


def pair(name: str, source: str, target: str) -> Any:
    return model_info(name, source_language=source, target_language=target)


CATALOGUE = registry_of(pair("a", "en", "de"), pair("b", "en", "de"), pair("c", "de", "en")).catalogue


class TestFind:
    @pytest.mark.parametrize(
        ("model", "source", "target", "found"),
        [
            (None, "", "", "a"),
            (None, "en", "de", "a"),
            (None, "DE", "EN", "c"),
            (None, "", "en", "c"),
            (None, "de", "", "c"),
            ("b", "", "", "b"),
            ("b", "en", "de", "b"),
            ("b", "en-US", "de_AT", "b"),
            (None, "ger", "eng_Latn", "c"),
        ],
    )
    def test_first_model_that_fits_is_found(self, model, source, target, found):
        assert CATALOGUE.find(model=model, source_language=source, target_language=target).info.name == found

    @pytest.mark.parametrize(
        ("model", "source", "target", "facts"),
        [
            ("x", "", "", "'x'; loaded: a, b, c"),
            ("", "", "", "''; loaded: a, b, c"),
            (None, "fr", "", "'fr' to any language; language pairs: en-de, en-de, de-en"),
            ("c", "en", "de", "'en' to 'de'; language pairs: de-en"),
            ("\u202e" + "x" * 1_000, "", "", f"'\\u202e{'x' * 39}...'; loaded"),  # short and harmless in a message
        ],
    )
    def test_nothing_that_fits_is_not_found_with_what_there_is(self, model, source, target, facts):
        with pytest.raises(NotFound) as error:
            CATALOGUE.find(model=model, source_language=source, target_language=target)

        assert facts in str(error.value)

    def test_closest_model_is_found_and_of_equals_the_first(self):
        models = (pair("uk", "en-GB", "de"), pair("us", "en-US", "de"), pair("us2", "en-US", "de-DE"))
        catalogue = registry_of(*models).catalogue

        asked = ("en", "en-GB", "en-AU", "en-US")
        found = [catalogue.find(model=None, source_language=tag, target_language="de").info.name for tag in asked]

        assert found == ["us", "uk", "uk", "us"]

    def test_model_that_the_caller_may_not_use_is_as_if_it_were_not_there(self):
        only_b = CATALOGUE.find(model=None, source_language="en", target_language="de", allowed=frozenset({"b"}))
        with pytest.raises(NotFound, match="'a'; loaded: b"):
            CATALOGUE.find(model="a", source_language="", target_language="", allowed=frozenset({"b"}))
        with pytest.raises(NotFound, match="there is no model; loaded: none"):
            CATALOGUE.find(model=None, source_language="", target_language="", allowed=frozenset())

        assert only_b.info.name == "b"


def host(name: str, version: str, jobs: int) -> Any:
    candidate = BundleCandidate(directory=Path(name) / version, name=name, version=version, manifest_sha256="s" * 64)
    made = FakeModel(candidate, model_info(name, version), asyncio.Event(), pool=idle_engines(jobs))
    made.sha256_12, made.state = f"sha{version}", ModelState.SERVING
    return made


async def test_gauges_of_a_model_are_of_all_its_versions_together():
    metrics = Metrics()
    registry = Registry(ServerConfig(limits=LimitsConfig(max_request_seconds=5.0)), metrics)
    old, new = host("a", "1", 2), host("a", "2", 3)
    registry.publish(host("b", "1", 100))
    registry.publish(old)

    with old.in_use:
        registry.publish(new)
        page = b"".join(metrics.exposition()).decode()

    for gauge in ("queue_requests", "queue_tokens", "running_jobs", "live_rows", "engines", "engines_missing"):
        assert f'dragoman_{gauge}{{model="a"}} 5.0' in page
    assert 'dragoman_model_info{model="a",provider="cpu",runtime="native",sha256_12="sha2",version="2"} 1.0' in page
    assert 'model="a",provider="cpu",sha256_12="sha1"' not in page
    assert 'dragoman_model_reload_total{model="a",result="loaded"} 2.0' in page
    assert 'dragoman_model_reload_total{model="a",result="retired"} 1.0' in page
    await registry.close()


def test_refusal_of_a_model_that_never_served_is_on_the_page_for_as_long_as_it_stands():
    metrics = Metrics()
    registry = Registry(ServerConfig(limits=LimitsConfig(max_request_seconds=5.0)), metrics)
    bad = host("new", "1", 0).candidate
    registry.publish(host("good", "1", 0))
    registry.refuse(bad, ValueError("bad"))

    read = partial(sample_of, metrics)
    before = [read("dragoman_model_refused", {"model": name}) for name in ("new", "good")]
    registry.forget_refusals([bad.directory])

    assert before == [1.0, 0.0]
    assert read("dragoman_model_refused", {"model": "new"}) == 0.0


CODES = {"en": "eng_Latn", "de": "deu_Latn", "fr": "fra_Latn", "zh": "zho_Hans", "zh-Hant": "zho_Hant"}
LANGUAGES = tuple(Language(code=code, flores=flores) for code, flores in CODES.items())


@pytest.fixture
def several() -> ModelInfo:
    return replace(model_info("many"), languages=LANGUAGES)


def languages_of_pair(info: ModelInfo) -> tuple[str, str]:
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
    assert languages_of_pair(for_languages(several, source, target)) == expected


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
