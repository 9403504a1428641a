"""Which models a text goes through, by what is asked for and what there is."""

from typing import Any

import pytest

from service.records import TranslateOptions, TranslationRequest
from service.translate.routes import all_languages, find_route, hops_of, routes_of, source_languages
from tests.fakes.model_info import model_info


def infos(*pairs: str) -> Any:
    return [model_info(pair, source_language=pair.split("_")[0], target_language=pair.split("_")[1]) for pair in pairs]


def named(routes: Any) -> dict[str, str]:
    return {source: " ".join(info.name for info in route) for source, route in routes.items()}


@pytest.mark.parametrize(
    ("pairs", "source", "target", "route"),
    [
        ("en_de de_en", "en", "de", "en_de"),
        ("en_de de_en", "en-US", "de-AT", "en_de"),
        ("en_de de_en", "de", "", "de_en"),
        ("fr_en en_de", "fr", "de", "fr_en en_de"),
        ("fr_en en_de fr_de", "fr", "de", "fr_de"),
        ("fr_es fr_en es_de en_de", "fr", "de", "fr_es es_de"),  # the first of several
        ("fr_en-GB fr_es en_de es_de", "fr", "de", "fr_es es_de"),  # but rather the closest
        ("fr_en-GB en_de", "fr", "de", "fr_en-GB en_de"),
        ("ja_zh-Hant zh-Hans_de", "ja", "de", ""),  # another script is another language
        ("fr_en en_es es_de", "fr", "de", ""),  # two at most
        ("en_de de_en", "en", "en", ""),
        ("en_de de_en", "en", "en-GB", ""),
        ("fr_en en_de", "fr", "", "fr_en"),
        ("fr_en en_de", "de", "fr", ""),
    ],
)
def test_route_of_a_pair(pairs, source, target, route):
    assert " ".join(info.name for info in find_route(infos(*pairs.split()), source, target)) == route


@pytest.mark.parametrize(
    ("pairs", "source", "target", "routes"),
    [
        ("en_de de_en", "", "", {"en": "en_de", "de": "de_en"}),
        ("en_de de_en fr_en", "", "en", {"de": "de_en", "fr": "fr_en"}),
        ("fr_en en_de", "", "de", {"fr": "fr_en en_de", "en": "en_de"}),
        ("fr_en en_de", "fr", "de", {"fr": "fr_en en_de"}),
        ("fr_en en_de", "", "", {"fr": "fr_en", "en": "en_de"}),
        ("en_de de_en", "", "de", {"en": "en_de"}),  # a text may be German already
        # Plainly one model, or none.
        ("en_de de_en", "en", "de", {}),
        ("en_de en-GB_fr", "", "", {}),
        ("en_de", "", "", {}),
        ("en_de de_en", "", "fr", {}),
        ("en_de de_en", "fr", "de", {}),
        ("", "", "", {}),
    ],
)
def test_routes_of_a_request(pairs, source, target, routes):
    assert named(routes_of(infos(*pairs.split()), source, target)) == routes


def test_languages_that_serve_for_each_other_are_one():
    models = infos("en_de", "de_en", "en-US_fr", "de-CH_fr", "zh-Hans_en", "zh-Hant_en")

    assert source_languages(models) == ["en", "de", "zh-Hans", "zh-Hant"]


def test_all_languages_are_those_from_which_models_translate_and_then_the_others():
    assert all_languages(infos("fr_en-GB", "en_de", "en-US_it")) == ["fr", "en", "de", "it"]


class TestLegs:
    ROUTE = tuple(infos("fr_en", "en_de"))

    def test_one_leg_is_the_request_with_its_model(self):
        (hop,) = hops_of(TranslationRequest(texts=["a"], source_language="fr-CA"), self.ROUTE[:1])

        assert hop == TranslationRequest(texts=["a"], source_language="fr-CA", model="fr_en")

    def test_what_is_about_the_final_text_is_for_the_second_model_alone(self):
        final: Any = {"num_hypotheses": 2, "max_target_tokens": 9, "min_target_tokens": 2, "suppressed_phrases": ("x",)}
        drawn: Any = {"sampling_top_k": 5, "sampling_top_p": 0.5, "sampling_temperature": 2.0, "sampling_seed": 1}
        options = TranslateOptions(beam_size=3, length_penalty=0.5, return_alternatives=True, **final, **drawn)
        request = TranslationRequest(texts=["a"], options=options, target_prefixes=("Das",), source_language="fr")

        first, second = hops_of(request, self.ROUTE)

        assert first.options == TranslateOptions(beam_size=3, length_penalty=0.5)
        assert second.options == options
        assert (first.model, first.target_prefixes, first.source_language) == ("fr_en", (), "")
        assert (second.model, second.target_prefixes) == ("en_de", ("Das",))
