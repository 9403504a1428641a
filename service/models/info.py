"""Describes models, turns texts into token ids and back, and the options of a request into search parameters.

This module knows bundles, tokenizers and records, but no running engine and no server, so a server and `service.local`
give the same answers.  The range of each option stands at its field of `TranslateOptions`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from model.bundle import Bundle
from model.language_codes import flores_of
from model.languages import Language
from model.manifest import GPU_PRECISION, PREFERRED_PRECISIONS
from model.spelling import Spellings
from model.tokenizer import SupportsTokens
from service.config import LimitsConfig
from service.engine.wire import Device, FinishReason, Hypothesis, SearchParams
from service.errors import InvalidInput, TooLong
from service.records import OPTIONS, ModelInfo, Span, TranslatedText, TranslateOptions
from service.text.languages import closeness
from service.text.protect import Alphabet

DEFAULT_MAX_BEAM_SIZE = LimitsConfig().max_beam_size  # where no setting changes it
_MOST_PAIRS = 256  # codecs that a model of several languages keeps
_MAX_PHRASES = 64
_MAX_PHRASE_CHARACTERS = 200
_PARAMS = tuple(name for name in OPTIONS if name in SearchParams._fields)
_RANGES = {name: (within.least, within.most) for name in _PARAMS if (within := OPTIONS[name].range) is not None}


def describe(
    bundle: Bundle,
    precision: str | None = None,
    device: Device = "cpu",
    *,
    max_beam_size: int = DEFAULT_MAX_BEAM_SIZE,
) -> ModelInfo:
    """Describe the model of a bundle, with complete default options.

    Args:
        precision: of the graphs; None for the best that the bundle has.
        device: where the graphs run.
        max_beam_size: the largest beam that is accepted, which also limits the default.
    """
    manifest, decoding = bundle.manifest, bundle.manifest.decoding
    preferred = PREFERRED_PRECISIONS if device == "cpu" else (GPU_PRECISION,)
    precision = precision or next((name for name in preferred if name in manifest.variants), "")
    variant = manifest.variants.get(precision)
    return ModelInfo(
        name=manifest.name,
        version=manifest.version,
        source_language=manifest.source_language,
        target_language=manifest.target_language,
        precision=precision,
        device=device,
        default_options=TranslateOptions(
            beam_size=min(decoding.beam_size, max_beam_size),
            num_hypotheses=1,
            length_penalty=decoding.length_penalty,
            patience=decoding.patience,
            max_target_tokens=decoding.max_target_tokens,
            use_shortlist=False,
            allow_smaller_beam=False,
            stop_repetition=decoding.stop_repetition,
        ),
        max_source_tokens=decoding.max_source_tokens,
        max_beam_size=max_beam_size,
        has_shortlist=bool(manifest.shortlist) and device == "cpu",
        reliable_source_tokens=decoding.reliable_source_tokens,
        has_scorer=variant is not None and bool(variant.scorer),
        has_head_weights=variant is not None and variant.attention_weights,
        has_repetition_penalty=variant is not None and variant.repetition_penalty,
        languages=manifest.tokenizer.languages,
    )


def languages_of(info: ModelInfo) -> tuple[Language, ...]:
    """Return the languages of a model in all their codes; of a model of one pair the source, then the target."""
    source, target = info.source_language, info.target_language
    return info.languages or (
        Language(code=source, flores=flores_of(source), is_target=False),
        Language(code=target, flores=flores_of(target), is_source=False),
    )


def pair_distance(info: ModelInfo, source_language: str, target_language: str) -> int | None:
    """Return the distance of a model's languages to those of a request, 0 for the same; None: it does not fit."""
    if info.languages:
        found = _find_pair(info, source_language, target_language)
        return None if found is None else found[0]
    distance = 0
    for asked, offered in ((source_language, info.source_language), (target_language, info.target_language)):
        if asked:
            if (far := closeness(asked, offered)) is None:
                return None
            distance += far
    return distance


def for_languages(info: ModelInfo, source_language: str, target_language: str) -> ModelInfo:
    """Return a model of several languages as a model of these two; a model of one pair as it is."""
    found = _find_pair(info, source_language, target_language) if info.languages else None
    if found is None:
        return info
    return replace(info, source_language=found[1], target_language=found[2])


def _find_pair(info: ModelInfo, source_language: str, target_language: str) -> tuple[int, str, str] | None:
    """Return the closest languages of a model of several, and their distance; its usual one where none is asked."""
    source = target = (0, "")
    if source_language:
        source = min(_near(source_language, info, is_source=True), default=(0, ""))
    if target_language:
        target = min(_near(target_language, info, is_source=False), default=(0, ""))
    if (source_language and not source[1]) or (target_language and not target[1]):
        return None
    usual = info.source_language, info.target_language
    from_code = source[1] or next(code for code in (*usual, *info.source_languages) if code != target[1])
    to_code = target[1] or next(code for code in (*reversed(usual), *info.target_languages) if code != from_code)
    if from_code == to_code or to_code not in info.target_languages or from_code not in info.source_languages:
        return None
    return source[0] + target[0], from_code, to_code


def _near(asked: str, info: ModelInfo, *, is_source: bool) -> list[tuple[int, str]]:
    """Return the languages of a model that serve for the one asked for, by any of its codes, and how far each is."""
    languages = [one for one in info.languages if (one.is_source if is_source else one.is_target)]
    for one in languages:
        if asked in (one.code, one.flores):
            return [(0, one.code)]
    return [(int(far), one.code) for one in languages if (far := closeness(asked, one.code)) is not None]


def untranslated(text: str) -> TranslatedText:
    """Return the hypothesis for a text without language, which the model never sees: the text itself."""
    return TranslatedText(text=text, score=0.0, finish_reason=FinishReason.END_OF_SENTENCE, target_tokens=0)


class TextCodec:
    """One model's texts in token ids; may be used from several threads at once.

    It does not know which text of a request it is given: `InvalidInput.at` completes its errors.
    """

    def __init__(self, tokenizer: SupportsTokens, *, max_characters: int, max_source_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._max_characters = max_characters
        self.max_source_tokens = max_source_tokens
        self.target_prefix = tuple(tokenizer.target_prefix)  # what every translation begins with
        self.alphabet = Alphabet(self._read_back)
        self.sentinels = tokenizer.sentinels
        self._pairs: dict[tuple[str, str], TextCodec] = {}

    @cached_property
    def marked(self) -> "TextCodec":
        """The codec of texts in which `sentinels` are tokens that the model copies; they are no part of other texts."""
        return TextCodec(
            self._tokenizer.marked(), max_characters=self._max_characters, max_source_tokens=self.max_source_tokens
        )

    def between(self, source_language: str, target_language: str) -> "TextCodec":
        """The codec for texts of these languages, BCP 47, of a model of several."""
        pair = source_language, target_language
        if (found := self._pairs.get(pair)) is None:
            if len(self._pairs) >= _MOST_PAIRS:
                self._pairs.clear()
            limits = {"max_characters": self._max_characters, "max_source_tokens": self.max_source_tokens}
            found = self._pairs[pair] = TextCodec(self._tokenizer.between(*pair), **limits)
        return found

    def check(self, text: str) -> None:
        """Raise InvalidInput if a text has more characters than any may have, or is no Unicode text."""
        if len(text) > self._max_characters:
            raise too_long(len(text), "characters", self._max_characters)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise _unreadable() from error

    def encode(self, text: str) -> list[int]:
        """Source ids of a text that has to fit as it is, end-of-sentence last; empty for a blank text.

        Raises:
            InvalidInput: the text is too long, or no Unicode text; says its length and the limit.
        """
        self.check(text)  # a text that is too long is not worth tokenising
        ids = self.tokenize(text)
        if len(ids) > self.max_source_tokens:
            raise too_long(len(ids), "tokens", self.max_source_tokens)
        return ids

    def tokenize(self, text: str) -> list[int]:
        """Source ids of a text of any length, end-of-sentence last; empty for a blank text.

        Raises:
            InvalidInput: the text is no Unicode text.
        """
        try:
            return self._tokenizer.encode(text)
        except (RuntimeError, ValueError) as error:  # SentencePiece on strings that are no Unicode text
            raise _unreadable() from error

    def tokenize_with_spans(self, text: str) -> tuple[list[int], list[Span]]:
        """As `tokenize`, with the place of each token in the text; that of end-of-sentence is empty."""
        try:
            ids, spans = self._tokenizer.encode_with_spans(text)
        except (RuntimeError, ValueError) as error:
            raise _unreadable() from error
        return ids, list(map(Span._make, spans))

    def target_with_spans(self, text: str) -> tuple[list[int], list[Span]]:
        """Target ids of a text without end-of-sentence, with the place of each token in the text, of a prefix empty.

        Raises:
            InvalidInput: the text is no Unicode text.
        """
        try:
            ids, spans = self._tokenizer.encode_target_with_spans(text)
        except (RuntimeError, ValueError) as error:
            raise _unreadable() from error
        begin = self.target_prefix
        return [*begin, *ids], [*[Span(0, 0)] * len(begin), *map(Span._make, spans)]

    def spellings(self, phrases: Sequence[str]) -> Spellings:
        """The ways in which tokens spell phrases.

        Raises:
            InvalidInput: one is no Unicode text.
        """
        try:
            return self._tokenizer.spellings(phrases)
        except (RuntimeError, ValueError) as error:
            field = "options.suppressed_phrases"
            raise InvalidInput(f"{field} cannot be split into tokens", field=field) from error

    def prefix_ids(self, prefix: str, params: SearchParams) -> tuple[int, ...]:
        """Token ids that every translation of a text begins with, without end-of-sentence.

        Raises:
            InvalidInput: the prefix is no Unicode text, or leaves no room for a translation.
        """
        limit = params.max_target_tokens - 1
        try:
            given = tuple(self._tokenizer.encode_target(prefix))
        except (RuntimeError, ValueError) as error:
            message = "has a target prefix that cannot be split into tokens"
            raise InvalidInput(message, field="target_prefixes", index=0) from error
        ids = self.target_prefix + given
        if given and len(ids) > limit:
            message = f"has a target prefix of {len(ids)} tokens, at most {limit} are accepted"
            raise InvalidInput(message, field="target_prefixes", index=0)
        return ids

    def decode_with_spans(self, token_ids: Sequence[int]) -> tuple[str, list[Span]]:
        """The text of a hypothesis, and the place of each token in it."""
        text, spans = self._tokenizer.decode_with_spans(token_ids)
        return text, list(map(Span._make, spans))

    def _read_back(self, character: str) -> str | None:
        try:
            return self._tokenizer.read_back(character)
        except (RuntimeError, ValueError) as error:
            raise _unreadable() from error

    def decode(self, hypotheses: Sequence[Hypothesis]) -> tuple[TranslatedText, ...]:
        """The hypotheses as text, in their order."""
        return tuple(map(self._to_text, hypotheses))

    def _to_text(self, hypothesis: Hypothesis) -> TranslatedText:
        is_ended = hypothesis.finish_reason is FinishReason.END_OF_SENTENCE
        return TranslatedText(
            text=self._tokenizer.decode(hypothesis.token_ids),
            score=hypothesis.score,
            finish_reason=hypothesis.finish_reason,
            target_tokens=len(hypothesis.token_ids) + is_ended,
        )


def for_request(
    info: ModelInfo, codec: TextCodec, source_language: str, target_language: str
) -> tuple[ModelInfo, TextCodec]:
    """Return a model and its codec for these languages; those of a model of one pair are the same for all."""
    if not info.languages:
        return info, codec
    info = for_languages(info, source_language, target_language)
    return info, codec.between(info.source_language, info.target_language)


def too_long(length: int, unit: str, limit: int, field: str = "texts") -> TooLong:
    """Return the error of a text that has so many characters or tokens; `InvalidInput.at` says which text it is."""
    return TooLong(f"has {length} {unit}, at most {limit} are accepted", field=field, index=0)


def _unreadable() -> InvalidInput:
    return InvalidInput("cannot be split into tokens", field="texts", index=0)


def search_params(info: ModelInfo, options: TranslateOptions, codec: TextCodec | None = None) -> SearchParams:
    """Return the options, with the model's defaults where they are absent.

    Args:
        info: its default options have what every search needs, and their max_target_tokens is the model's limit.
        options: of the request.
        codec: of the model; may be left out where no phrases are to be suppressed.

    Raises:
        InvalidInput: names the option, its value, and the range or what does not fit.
    """
    given, defaults = _given(options), _given(info.default_options)
    params = SearchParams(**{**defaults, **given})
    limits = {
        **_RANGES,
        "beam_size": (1, info.max_beam_size),
        "num_hypotheses": (1, params.beam_size),
        "max_target_tokens": (1, defaults["max_target_tokens"]),
        "min_target_tokens": (0, params.max_target_tokens - 1),
    }
    for name, (least, most) in limits.items():
        _check_range(name, getattr(params, name), least, most)
    if params.use_shortlist and not info.has_shortlist:
        raise _refused("use_shortlist", params, "the model has no shortlist")
    if params.repetition_penalty != 1.0 and not info.has_repetition_penalty:
        reason = "the model was exported before its graphs took one: export it again"
        raise _refused("repetition_penalty", params, reason)
    if params.sampling_top_k:
        _check_sampling(params)
    elif drawn := [name for name in given if name.startswith("sampling_") and name != "sampling_top_k"]:
        raise _refused(
            drawn[0], params, f"nothing is drawn without sampling_top_k, up to {_RANGES['sampling_top_k'][1]:,}"
        )
    phrases = _checked(options.suppressed_phrases)
    return params._replace(suppressed=codec.spellings(phrases)) if phrases and codec is not None else params


def _given(options: TranslateOptions) -> dict[str, Any]:
    return {name: value for name in _PARAMS if (value := getattr(options, name)) is not None}


def _check_range(option: str, value: float, low: float, high: float) -> None:
    """Raise InvalidInput if the value of an option is outside its range, both ends included."""
    if not low <= value <= high:  # also refuses NaN
        given = value if isinstance(value, int) else f"{value:g}"
        raise InvalidInput(f"options.{option} is {given}, from {low} to {high} is accepted", field=f"options.{option}")


def _check_sampling(params: SearchParams) -> None:
    if params.beam_size != 1:
        raise _refused("sampling_top_k", params, f"beam_size is {params.beam_size}: tokens are drawn with beam_size 1")
    if params.return_alternatives:
        raise _refused("sampling_top_k", params, "return_alternatives is true: alternatives are searched, not drawn")
    if params.sampling_top_p == 0.0:
        raise _refused("sampling_top_p", params, "more than 0 is accepted")


def _checked(phrases: Sequence[str]) -> Sequence[str]:
    field = "options.suppressed_phrases"
    if len(phrases) > _MAX_PHRASES:
        message = f"{field} has {len(phrases)} phrases, at most {_MAX_PHRASES} are accepted"
        raise InvalidInput(message, field=field)
    for index, phrase in enumerate(phrases):
        if not 0 < len(phrase.strip()) <= len(phrase) <= _MAX_PHRASE_CHARACTERS:
            length = "is blank" if not phrase.strip() else f"has {len(phrase)} characters"
            message = f"{field}[{index}] {length}, from 1 to {_MAX_PHRASE_CHARACTERS} characters are accepted"
            raise InvalidInput(message, field=f"{field}[{index}]")
    return phrases


def _refused(option: str, params: SearchParams, reason: str) -> InvalidInput:
    value = getattr(params, option)
    given = str(value).lower() if isinstance(value, int) else f"{value:g}"
    return InvalidInput(f"options.{option} is {given}, and {reason}", field=f"options.{option}")
