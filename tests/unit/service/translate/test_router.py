"""Texts of several languages, and of pairs without a model: where they go, and what their call comes to."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from service.call import Call, Caller
from service.config import LimitsConfig
from service.engine.wire import FinishReason
from service.errors import DragomanError, InternalError, InvalidInput, NotFound, TooLong, Unavailable
from service.models.call_scheduler import CallScheduler
from service.models.catalogue import Catalogue, ServedModel
from service.records import (
    Span,
    TextWarning,
    TranslatedSegment,
    TranslatedText,
    TranslateOptions,
    Translation,
    TranslationRequest,
    TranslationResult,
    WarningKind,
)
from service.scheduler.admission import Reservation
from service.telemetry.metrics import Metrics
from service.telemetry.usage import UsageMeter
from service.text import languages as detector
from service.translate.router import Router
from service.translate.translator import Translator
from tests.fakes.manual_pool import ManualModel
from tests.fakes.model_info import model_info

LIMITS = LimitsConfig(max_queued_tokens=1_000, max_characters=100)
ENGLISH, GERMAN, FRENCH = "The cat sleeps.", "Die Katze schläft.", "Le chat dort."


class Signed(Translator):
    """Each model signs what it translates; some texts meet what the test has scripted for them."""

    def __init__(self, *pairs: str) -> None:
        infos = [model_info(p, source_language=p.split("_")[0], target_language=p.split("_")[1]) for p in pairs]
        catalogue = Catalogue()
        catalogue.replace(cast("ServedModel", ManualModel(info=info)) for info in infos)
        self.executor = ThreadPoolExecutor(1)
        super().__init__(CallScheduler(catalogue, LIMITS), UsageMeter(Metrics()), LIMITS, self.executor)
        self.seen: list[TranslationRequest] = []
        self.held: list[tuple[int, int]] = []  # characters that the hop took, and that the server holds
        self.errors: dict[str, DragomanError] = {}  # of the whole hop, by a text in it
        self.bad: dict[str, DragomanError] = {}  # of a text, by the text
        self.gates: dict[str, asyncio.Event] = {}  # by model

    async def translate(self, request: TranslationRequest, call: Call, reservation: Reservation) -> TranslationResult:
        model, params = self.resolve(request, call)
        name = model.info.name
        self.seen.append(request)
        before = self.admission.characters
        reservation.take_characters(sum(map(len, request.texts)))
        self.held.append((self.admission.characters - before, self.admission.characters))
        call.phase, call.source_tokens, call.queue_s = "decode", len(request.texts), 0.5
        if name in self.gates:
            await self.gates[name].wait()
        for text in request.texts:
            if text in self.errors:
                raise self.errors[text]
        call.finished_texts, call.target_tokens = len(request.texts), len(request.texts)
        result = TranslationResult(
            translations=[self._sign(text, name) for text in request.texts],
            model=name,
            model_version=f"v{name}",
            beam_size=params.beam_size,
        )
        self.usage_meter.translated(request, result, call)
        return result

    def _sign(self, text: str, name: str) -> Translation:
        if text in self.bad:
            return Translation(error=self.bad[text])
        signed = TranslatedText(
            text=f"{name}({text})", score=-1.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=1
        )
        warning = TextWarning(WarningKind.COPIED, name, Span(1, 3))
        whole, made = Span(0, len(text)), Span(0, len(signed.text))
        segment = TranslatedSegment(source=whole, target=made, hypotheses=(signed,), warnings=(warning,))
        return Translation(hypotheses=(signed,), source_tokens=3, row_steps=5, segments=(segment,))


def new_call(models: frozenset[str] | None = None) -> Call:
    now = time.monotonic()
    return Call(method="m", caller=Caller(name="shop"), started=now, deadline=now + 600.0, models=models)


class Setup:
    def __init__(self, *pairs: str) -> None:
        self.translator = Signed(*pairs)
        self.router = Router(self.translator)
        self.call = new_call()

    async def translate(self, *texts: str, **wanted: Any) -> TranslationResult:
        return await self.router.translate(TranslationRequest(texts=texts, **wanted), self.call)

    def usage(self) -> Any:
        (usage,) = self.translator.usage_meter.take().values()
        return usage


@pytest.fixture
def two() -> Iterator[Setup]:
    setup = Setup("en_de", "de_en")
    yield setup
    setup.translator.executor.shutdown()


@pytest.fixture
def pivot() -> Iterator[Setup]:
    setup = Setup("fr_en", "en_de")
    yield setup
    setup.translator.executor.shutdown()


def texts_of(result: TranslationResult) -> list[str]:
    return [translation.text for translation in result.translations]


class TestDetection:
    async def test_each_text_goes_to_the_model_of_its_language(self, two):
        result = await two.translate(GERMAN, ENGLISH, "Guten Morgen", "Good morning")

        ways = (("de_en", GERMAN), ("en_de", ENGLISH), ("de_en", "Guten Morgen"), ("en_de", "Good morning"))
        assert texts_of(result) == [f"{model}({text})" for model, text in ways]
        assert [translation.detected_language for translation in result.translations] == ["de", "en", "de", "en"]
        assert all(translation.detection_confidence > 0.9 for translation in result.translations)
        assert all(translation.segments for translation in result.translations)
        assert (result.model, result.model_version) == ("de_en,en_de", "vde_en,ven_de")

    async def test_texts_of_one_language_are_one_request_with_one_reservation(self, two):
        result = await two.translate(GERMAN, "Guten Morgen")

        assert [request.texts for request in two.translator.seen] == [(GERMAN, "Guten Morgen")]
        assert (result.model, two.call.model, two.call.has_several_models) == ("de_en", "de_en", False)
        assert (two.call.finished_texts, two.translator.admission.requests) == (2, 0)

    @pytest.mark.parametrize(("others", "model"), [((), "en_de"), ((GERMAN, ENGLISH), "de_en")])
    async def test_text_without_language_goes_with_the_first_that_has_one_or_to_the_first_model(
        self, two, others, model
    ):
        result = await two.translate("42", *others)

        assert (result.translations[0].text, result.translations[0].detected_language) == (f"{model}(42)", "")
        assert result.translations[0].detection_confidence == 0.0

    @pytest.mark.parametrize(
        ("wanted", "model"),
        [
            ({"model": "en_de"}, "en_de"),
            ({"model": "en_de", "target_language": "de"}, "en_de"),
            ({"source_language": "en-US"}, "en_de"),
        ],
    )
    async def test_nothing_is_detected_where_the_request_says_which_model(self, two, wanted, model):
        two.router._detector = None

        result = await two.translate(GERMAN, **wanted)

        assert (result.model, result.translations[0].detected_language) == (model, "")
        assert two.translator.seen[0].texts == (GERMAN,)

    @pytest.mark.parametrize("error", [MemoryError(), OSError("Input/output error"), ImportError("no such package")])
    async def test_detector_that_cannot_be_loaded_is_unavailable_and_tried_again_later(self, two, monkeypatch, error):
        attempts = []

        def load(_: detector.Detector) -> None:
            attempts.append(error)
            raise error

        with monkeypatch.context() as patches, capture_logs() as logs:
            patches.setattr(detector.Detector, "load", load)
            for _ in range(3):
                with pytest.raises(Unavailable, match="cannot detect languages, and its log says why: name the source"):
                    await two.translate(GERMAN)
            named = await two.translate(GERMAN, source_language="de")
        two.router._load_at = 0.0  # later

        assert (len(attempts), named.model) == (1, "de_en")
        assert [entry["event"] for entry in logs] == ["language_detection_not_loaded"]
        assert (await two.translate(GERMAN)).model == "de_en"

    async def test_models_that_the_caller_may_not_use_are_not_there(self, two):
        two.call = new_call(frozenset({"de_en"}))

        result = await two.translate(ENGLISH)

        assert (result.model, result.translations[0].detected_language) == ("de_en", "")

    async def test_groups_run_at_the_same_time_under_one_reservation(self, two):
        two.translator.gates = {"en_de": asyncio.Event(), "de_en": asyncio.Event()}
        task = asyncio.create_task(two.translate(GERMAN, ENGLISH))
        async with asyncio.timeout(30):
            while len(two.translator.seen) < 2:  # noqa: ASYNC110  a list raises no events
                await asyncio.sleep(0)
        admission = two.translator.admission
        inside = (admission.requests, admission.characters)
        for gate in two.translator.gates.values():
            gate.set()
        await task

        assert inside == (1, len(GERMAN + ENGLISH))
        assert (admission.requests, admission.characters) == (0, 0)

    async def test_first_error_ends_the_call_and_all_groups(self, two):
        two.translator.gates = {"en_de": asyncio.Event()}
        two.translator.errors = {GERMAN: Unavailable("engine lost")}

        with pytest.raises(Unavailable, match="engine lost"):
            await two.translate(ENGLISH, GERMAN)
        assert (two.translator.admission.requests, two.translator.admission.characters) == (0, 0)


class TestWhatStays:
    """Texts in the target language, or in one of no model, come back as they are."""

    async def test_text_in_the_target_language_comes_back_with_what_was_measured(self, two):
        result = await two.translate(GERMAN, target_language="de-AT")

        (translation,) = result.translations
        assert (translation.text, translation.detected_language) == (GERMAN, "de")
        assert 0.95 <= translation.detection_confidence < 1.0
        assert (translation.source_tokens, translation.segments, translation.warnings) == (0, (), ())
        assert (result.model, result.model_version, two.call.model) == ("en_de", "1", "en_de")
        assert (two.translator.seen, two.call.finished_texts) == ([], 1)

    async def test_each_text_of_a_list_is_judged_by_itself(self, two):
        texts = (GERMAN, ENGLISH, "42", "Die Tür ist offen.", "Le chat dort sur le canapé.")

        result = await two.translate(*texts, target_language="de")

        assert texts_of(result) == [GERMAN, f"en_de({ENGLISH})", "en_de(42)", *texts[3:]]
        assert [one.detected_language for one in result.translations] == ["de", "en", "", "de", "fr"]
        assert (result.model, result.model_version, result.beam_size) == ("en_de", "ven_de", 4)
        assert (two.call.texts, two.call.finished_texts, two.call.model) == (5, 5, "en_de")

    async def test_text_in_a_language_of_no_model_comes_back_with_a_warning(self, two):
        text = "Il treno è in ritardo di nuovo."
        for wanted in ({"target_language": "de"}, {}):
            (translation,) = (await two.translate(text, **wanted)).translations

            (warning,) = translation.warnings
            assert (translation.text, translation.detected_language) == (text, "it")
            assert (warning.kind, warning.source) == (WarningKind.NOT_TRANSLATED, Span(0, len(text)))
            assert "the language it" in warning.message

    async def test_text_with_a_prefix_or_over_the_limit_is_never_left(self, two):
        long_text = "Das ist ein Text. " * 10
        result = await two.translate(GERMAN, long_text, target_language="de", target_prefixes=("Die", ""))

        assert texts_of(result) == [f"en_de({GERMAN})", f"en_de({long_text})"]

    @pytest.mark.parametrize(("source", "target"), [("de", "de"), ("de-AT", "de"), ("en-US", "en-GB")])
    async def test_source_that_is_the_target_gives_the_text_back_where_that_is_allowed(self, two, source, target):
        wanted: dict[str, Any] = {"source_language": source, "target_language": target}

        result = await two.translate(GERMAN, "x" * 101, **wanted, allows_same_language=True)

        assert result.translations[0].text == GERMAN
        assert isinstance(result.translations[1].error, TooLong)
        assert (two.call.finished_texts, two.usage().characters) == (2, len(GERMAN))
        with pytest.raises(NotFound):
            await two.translate(GERMAN, **wanted)

    async def test_language_that_no_model_knows_is_not_there_even_for_itself(self, two):
        with pytest.raises(NotFound):
            await two.translate("x", source_language="fr", target_language="fr", allows_same_language=True)

    async def test_judgement_is_there_without_a_translation(self, two):
        assert (await two.router.judge(GERMAN, "de", two.call)).stays
        assert (await two.router.judge(GERMAN, "en", two.call)).source == "de"
        assert not (await two.router.judge(GERMAN, "fr", two.call)).stays


class TestPivot:
    async def test_texts_of_both_languages_take_the_way_of_each(self, pivot):
        result = await pivot.translate(ENGLISH, FRENCH, target_language="de")

        assert texts_of(result) == [f"en_de({ENGLISH})", f"en_de(fr_en({FRENCH}))"]
        assert [translation.pivot_language for translation in result.translations] == ["", "en"]
        assert [translation.detected_language for translation in result.translations] == ["en", "fr"]
        assert result.model == "en_de,fr_en+en_de"

    async def test_segments_of_the_text_between_are_not_shown_and_warnings_of_both_are_kept(self, pivot):
        (translation,) = (await pivot.translate(FRENCH, source_language="fr", target_language="de")).translations

        assert translation.segments == ()
        assert translation.warnings == (
            TextWarning(WarningKind.COPIED, "fr_en", Span(1, 3)),
            TextWarning(WarningKind.COPIED, "en_de", Span(0, len(FRENCH))),
        )
        assert (translation.source_tokens, translation.row_steps) == (3, 10)

    async def test_text_that_fails_on_the_way_carries_its_error_and_the_others_go_on(self, pivot):
        pivot.translator.bad = {"a": TooLong("has", field="texts[0]", index=0), "fr_en(b)": InternalError("odd")}

        result = await pivot.translate("a", "b", "c", source_language="fr", target_language="de")

        assert [type(translation.error) for translation in result.translations] == [TooLong, InternalError, type(None)]
        assert pivot.translator.seen[1].texts == ["fr_en(b)", "fr_en(c)"]
        assert (result.translations[2].text, pivot.call.finished_texts) == ("en_de(fr_en(c))", 3)

    @pytest.mark.parametrize(("bad", "model"), [("a", "fr_en"), ("fr_en(a)", "en_de")])
    async def test_where_nothing_came_through_the_last_model_has_answered(self, pivot, bad, model):
        pivot.translator.bad = {bad: InternalError("odd")}

        result = await pivot.translate("a", source_language="fr", target_language="de")

        assert isinstance(result.translations[0].error, InternalError)
        assert (result.model, pivot.call.model) == (model, model)

    async def test_call_and_usage_count_both_legs_and_times_add_up(self, pivot):
        await pivot.translate(FRENCH, source_language="fr", target_language="de")

        call, usage = pivot.call, pivot.usage()
        assert (call.texts, call.finished_texts, call.source_tokens, call.target_tokens) == (1, 1, 2, 2)
        assert (call.queue_s, call.has_several_models) == (1.0, True)
        assert (usage.source_tokens, usage.row_steps) == (6, 10)
        assert usage.characters == len(FRENCH) + len(f"fr_en({FRENCH})")

    async def test_option_of_the_second_leg_is_checked_before_the_first_one_runs(self, pivot):
        with pytest.raises(InvalidInput, match="num_hypotheses is 9"):
            await pivot.translate(
                FRENCH, source_language="fr", target_language="de", options=TranslateOptions(num_hypotheses=9)
            )
        assert pivot.translator.seen == []

    @pytest.mark.parametrize("allowed", ["fr_en", "en_de"])
    async def test_caller_has_to_be_allowed_both_models(self, pivot, allowed):
        pivot.call = new_call(frozenset({allowed}))

        with pytest.raises(NotFound, match="there is no model for 'fr' to 'de'"):
            await pivot.translate(FRENCH, source_language="fr", target_language="de")


class TestStreams:
    """Their texts go the same ways, each with a reservation of its own."""

    async def test_their_texts_go_with_the_reservation_that_they_are_given(self, pivot: Setup):
        request = TranslationRequest(texts=(FRENCH,), target_language="de")
        plain = replace(request, model="en_de")

        with pivot.translator.admission.admit_part(pivot.call.caller) as reservation:
            assert texts_of(await pivot.router.translate_admitted(request, pivot.call, reservation)) == [
                f"en_de(fr_en({FRENCH}))"
            ]
            assert texts_of(await pivot.router.translate_admitted(plain, pivot.call, reservation)) == [
                f"en_de({FRENCH})"
            ]

    def test_settings_that_no_text_can_be_translated_with_are_refused(self, pivot):
        def check(**wanted: Any) -> None:
            pivot.router.check(TranslationRequest(**wanted), pivot.call)

        for good in ({}, {"target_language": "de"}, {"source_language": "fr", "target_language": "de"}):
            check(**good)
        with pytest.raises(NotFound):
            check(source_language="de")
        with pytest.raises(InvalidInput, match="beam_size is 99"):
            check(target_language="de", options=TranslateOptions(beam_size=99))
        with pytest.raises(InvalidInput, match="glossary"):
            check(target_language="de", glossary_name="house")


class TestDetectLanguage:
    async def test_languages_are_those_of_the_models_that_the_caller_may_use(self, pivot):
        found = await pivot.router.detect([FRENCH, ENGLISH, "42"], pivot.call)

        assert [one.language for one in found] == ["fr", "en", ""]
        assert (pivot.call.texts, pivot.call.finished_texts, pivot.translator.admission.requests) == (3, 3, 0)
        assert (await pivot.router.detect([GERMAN], pivot.call))[0].language == "de"
        assert (await pivot.router.detect(["Le chat dort sur le canapé."], new_call(frozenset({"en_de"})))) == [("", 0)]
        assert (await pivot.router.detect([FRENCH], new_call(frozenset())))[0].language == ""

    @pytest.mark.parametrize(
        ("texts", "message"),
        [([], "texts has 0 entries"), (["a", "x" * 101], "has 101 characters, at most 100 are accepted")],
    )
    async def test_limits_are_those_of_translating(self, pivot, texts, message):
        with pytest.raises(InvalidInput, match=message):
            await pivot.router.detect(texts, pivot.call)
        assert pivot.translator.admission.characters == 0
