"""Models that say what a script says, in a pipeline without engines: the included tokenizer around a Python function.

A script gets the source as the model would see it, unknown characters as U+2047, and returns the translation.  Scripts
that only look at tokens keep what the tokenizer does to a text.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Self

import numpy as np

from model.bundle import Bundle, named_bundle_dir
from model.config import EOS_ID, UNK_ID
from model.tokenizer import Tokenizer
from service.call import Call
from service.config import LimitsConfig
from service.engine.wire import FinishReason, Hypothesis, Job, JobResult, SearchParams, Settled, TokenScores
from service.models.call_scheduler import CallScheduler
from service.models.catalogue import Catalogue, UseCount
from service.models.codec import TextCodec
from service.models.info import describe, search_params
from service.records import NO_OPTIONS, ModelInfo, Translation, TranslationRequest, TranslationResult
from service.scheduler.admission import Reservation
from service.telemetry.metrics import Metrics
from service.telemetry.usage import UsageMeter
from service.translate.translator import Translator

LANGUAGES = ("en-de", "de-en")
LOG_PROB = -0.25  # of every token
LIMITS = LimitsConfig(max_queued_tokens=10_000_000)

Ids = tuple[int, ...]
Script = Callable[[Ids, Tokenizer], Ids]  # source and translation, both without end-of-sentence


def of_text(translate: Callable[[str], str]) -> Script:
    """Return the script that translates the text of the tokens."""

    def script(source: Ids, tokenizer: Tokenizer) -> Ids:
        return tuple(tokenizer.encode(translate(tokenizer.decode(source)))[:-1])

    return script


def echo(source: Ids, tokenizer: Tokenizer) -> Ids:
    """Say the source again, with its unknown tokens."""
    return source


def drop_unknown(source: Ids, tokenizer: Tokenizer) -> Ids:
    """Say what is known of the source."""
    return tuple(token for token in source if token != UNK_ID)


def only_unknown(source: Ids, tokenizer: Tokenizer) -> Ids:
    """Say an unknown token for each token."""
    return (UNK_ID,) * len(source)


def loop(source: Ids, tokenizer: Tokenizer) -> Ids:
    """Say the beginning of the source again and again."""
    return source[:3] * 200


def nothing(source: Ids, tokenizer: Tokenizer) -> Ids:
    return ()


def stutter(source: Ids, tokenizer: Tokenizer) -> Ids:
    """Say everything twice."""
    return source + source


def first_half(source: Ids, tokenizer: Tokenizer) -> Ids:
    return source[: len(source) // 2]


def reversed_tokens(source: Ids, tokenizer: Tokenizer) -> Ids:
    return source[::-1]


mangle = of_text(lambda text: "".join(one for one in text.lower() if one.isalnum() or one.isspace()))
reverse_words = of_text(lambda text: " ".join(reversed(text.split())))
always_the_same = of_text(lambda text: "Die Kinder spielen im Garten.")

SCRIPTS: dict[str, Script] = {
    "echo": echo,
    "drops unknown characters": drop_unknown,
    "says unknown tokens": only_unknown,
    "lower case without punctuation": mangle,
    "reverses the words": reverse_words,
    "reverses the tokens": reversed_tokens,
    "loops": loop,
    "says nothing": nothing,
    "says everything twice": stutter,
    "says half": first_half,
    "always says the same": always_the_same,
}


@cache
def _included(languages: str) -> tuple[ModelInfo, Tokenizer]:
    bundle = Bundle.load(named_bundle_dir(languages))
    return describe(bundle), Tokenizer.load(bundle.tokenizer_path)


def tokenizer_of(languages: str) -> Tokenizer:
    """Return the tokenizer of an included model."""
    return _included(languages)[1]


@dataclass(eq=False)
class ScriptedModel:
    """The `ServedModel` of one script, and its engines."""

    script: Script
    info: ModelInfo
    tokenizer: Tokenizer
    default_params: SearchParams
    in_use: UseCount = field(default_factory=UseCount)
    is_loaded: bool = True
    number: int = 0

    @classmethod
    def of(cls, script: Script, languages: str, *, has_scorer: bool) -> Self:
        info, tokenizer = _included(languages)
        return cls(script, replace(info, has_scorer=has_scorer), tokenizer, search_params(info, NO_OPTIONS))

    @property
    def codec(self) -> TextCodec:
        return TextCodec(
            self.tokenizer, max_characters=LIMITS.max_characters, max_source_tokens=self.info.max_source_tokens
        )

    async def load(self, call: Call, reservation: Reservation) -> None:
        raise AssertionError("it is loaded")

    @property
    def pool(self) -> Any:
        return self

    def forecast(self, lengths: Sequence[int], params: SearchParams, call: Call) -> tuple[float, float]:
        return 0.0, 0.0

    async def run(self, jobs: Sequence[Job], call: Call) -> list[Settled]:
        await asyncio.sleep(0)
        return [
            self._searched(job.source_ids, job.params)
            if job.scored_ids is None
            else _forced(job.source_ids, job.scored_ids, self.tokenizer)
            for job in jobs
        ]

    def _searched(self, source: Ids, params: SearchParams) -> JobResult:
        words = self.script(source[:-1] if source[-1] == EOS_ID else source, self.tokenizer)
        is_cut = len(words) >= params.max_target_tokens
        reason = FinishReason.LENGTH if is_cut else FinishReason.END_OF_SENTENCE
        hypothesis = Hypothesis(words[: params.max_target_tokens], LOG_PROB, reason)
        return JobResult(0, (hypothesis,) * params.num_hypotheses, 0.0, 0.0, 0.0, len(hypothesis.token_ids) + 1)


def _forced(source: Ids, target: Ids, tokenizer: Tokenizer) -> JobResult:
    """Say that the words of the translation are those of the source in order, stretched if there are more or less."""
    rows, columns = _word_numbers((*target, EOS_ID), tokenizer), _word_numbers(source, tokenizer)
    attention = np.zeros((len(rows), len(source)), np.float16)
    for step, word in enumerate(rows):
        wanted = word if rows[-1] == columns[-1] else round(word * columns[-1] / max(1, rows[-1]))
        attention[step, columns.index(wanted)] = 1.0
    hypothesis = Hypothesis(target, LOG_PROB, FinishReason.END_OF_SENTENCE)
    scores = TokenScores((LOG_PROB,) * len(rows), attention.tobytes())
    return JobResult(0, (hypothesis,), 0.0, 0.0, 0.0, 1, scores)


def _word_numbers(ids: Ids, tokenizer: Tokenizer) -> list[int]:
    """Return the number of each token's word, from 0; marks, and end-of-sentence, which is last, are words."""
    starts = [piece.startswith("\u2581") or not piece.isalnum() for piece in tokenizer.pieces(ids[:-1])]
    numbers = np.maximum(np.cumsum(starts) - 1, 0).tolist() if starts else []
    return [*numbers, numbers[-1] + 1 if numbers else 0]


class ScriptedPipeline:
    """The server's pipeline on scripted models of both languages; `translate` runs it to its end."""

    def __init__(self, script: Script, *, has_scorer: bool = True) -> None:
        self.models = [ScriptedModel.of(script, languages, has_scorer=has_scorer) for languages in LANGUAGES]
        self._runner = asyncio.Runner()
        catalogue = Catalogue()
        catalogue.replace(self.models)
        self._executor = ThreadPoolExecutor(1)
        self._translator = Translator(CallScheduler(catalogue, LIMITS), UsageMeter(Metrics()), LIMITS, self._executor)

    def translate(self, request: TranslationRequest) -> Sequence[Translation]:
        """Return one translation for each text."""
        now = time.monotonic()
        call = Call(method="Translate", started=now, deadline=now + 600.0)
        return self._runner.run(self._translate(request, call)).translations

    async def _translate(self, request: TranslationRequest, call: Call) -> TranslationResult:
        call.priority = call.caller.allowed(request.priority)
        with self._translator.admit(len(request.texts), call) as reservation:
            return await self._translator.translate(request, call, reservation)

    def close(self) -> None:
        self._runner.close()
        self._executor.shutdown()
