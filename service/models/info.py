"""Describes models, finds the one that a request means, and turns texts into token ids and back.

This module knows bundles, tokenizers and records, but no running engine and no server, so a server and `service.local`
give the same answers.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from model.bundle import Bundle
from model.language_codes import flores_of
from model.languages import Language
from model.manifest import GPU_PRECISION, PREFERRED_PRECISIONS
from model.spelling import Spellings
from model.tokenizer import SupportsTokens
from service.config import LimitsConfig
from service.engine.wire import Device, FinishReason, Hypothesis, SearchParams
from service.errors import InvalidInput, NotFound, TooLong
from service.records import ModelInfo, Span, TranslatedText, TranslateOptions
from service.text.protect import Alphabet
from service.text.scripts import closeness

DEFAULT_MAX_BEAM_SIZE = LimitsConfig().max_beam_size  # where no setting changes it
_MAX_ECHO = 40  # characters of a caller's value in a message
_MAX_OFFERS = 12  # language pairs in a message
_MOST_PAIRS = 256  # codecs that a model of several languages keeps


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


def index_of(infos: Sequence[ModelInfo], *, model: str | None, source_language: str, target_language: str) -> int:
    """Return the index of the model whose languages are closest, the first of several; an empty language fits all.

    Args:
        model: the only one that is meant; None: any.

    Raises:
        NotFound: no model fits; the message lists what there is.
    """
    named = [index for index, info in enumerate(infos) if model is None or info.name == model]
    if not named:
        names = ", ".join(info.name for info in infos)
        asked = "" if model is None else f" {_echo(model)}"
        raise NotFound(f"there is no model{asked}; loaded: {names or 'none'}")
    fitting = [
        (distance, index)
        for index in named
        if (distance := pair_distance(infos[index], source_language, target_language)) is not None
    ]
    if fitting:
        return min(fitting)[1]
    offers = [_offer(infos[index]) for index in named]
    some = ", ".join(offers[:_MAX_OFFERS]) + (f" and {len(offers) - _MAX_OFFERS} more" * (len(offers) > _MAX_OFFERS))
    languages = " to ".join(_echo(code) if code else "any language" for code in (source_language, target_language))
    raise NotFound(f"there is no model for {languages}; language pairs: {some}")


def _offer(info: ModelInfo) -> str:
    if not info.languages:
        return f"{info.source_language}-{info.target_language}"
    return (
        f"{info.name} from {len(info.source_languages)} to {len(info.target_languages)} languages (ListModels has them)"
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
    """One model's texts in token ids; may be used from several threads at once."""

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

    def check(self, text: str, index: int) -> None:
        """Raise InvalidInput if a text has more characters than any may have, or is no Unicode text.

        Args:
            text: as the caller sent it.
            index: the text's place among those it came with; only for the error.
        """
        if len(text) > self._max_characters:
            raise _too_long(index, len(text), "characters", self._max_characters)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput("cannot be split into tokens", field=f"texts[{index}]", index=index) from error

    def encode(self, text: str, index: int) -> list[int]:
        """Source ids of a text that has to fit as it is, end-of-sentence last; empty for a blank text.

        Args:
            text: as the caller sent it.
            index: as in `check`.

        Raises:
            InvalidInput: the text is too long, or no Unicode text; says its length and the limit.
        """
        self.check(text, index)  # a text that is too long is not worth tokenising
        ids = self.tokenize(text, index)
        if len(ids) > self.max_source_tokens:
            raise _too_long(index, len(ids), "tokens", self.max_source_tokens)
        return ids

    def tokenize(self, text: str, index: int = 0) -> list[int]:
        """Source ids of a text of any length, end-of-sentence last; empty for a blank text.

        Raises:
            InvalidInput: the text is no Unicode text.
        """
        try:
            return self._tokenizer.encode(text)
        except (RuntimeError, ValueError) as error:  # SentencePiece on strings that are no Unicode text
            raise InvalidInput("cannot be split into tokens", field=f"texts[{index}]", index=index) from error

    def tokenize_with_spans(self, text: str, index: int = 0) -> tuple[list[int], list[Span]]:
        """As `tokenize`, with the place of each token in the text; that of end-of-sentence is empty."""
        try:
            ids, spans = self._tokenizer.encode_with_spans(text)
        except (RuntimeError, ValueError) as error:
            raise InvalidInput("cannot be split into tokens", field=f"texts[{index}]", index=index) from error
        return ids, list(map(Span._make, spans))

    def target_with_spans(self, text: str, index: int = 0) -> tuple[list[int], list[Span]]:
        """Target ids of a text without end-of-sentence, with the place of each token in the text, of a prefix empty.

        Raises:
            InvalidInput: the text is no Unicode text.
        """
        try:
            ids, spans = self._tokenizer.encode_target_with_spans(text)
        except (RuntimeError, ValueError) as error:
            raise InvalidInput("cannot be split into tokens", field=f"texts[{index}]", index=index) from error
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

    def prefix_ids(self, prefix: str, index: int, params: SearchParams) -> tuple[int, ...]:
        """Token ids that every translation of a text begins with, without end-of-sentence.

        Raises:
            InvalidInput: the prefix is no Unicode text, or leaves no room for a translation.
        """
        field, limit = f"target_prefixes[{index}]", params.max_target_tokens - 1
        try:
            given = tuple(self._tokenizer.encode_target(prefix))
        except (RuntimeError, ValueError) as error:
            message = "has a target prefix that cannot be split into tokens"
            raise InvalidInput(message, field=field, index=index) from error
        ids = self.target_prefix + given
        if given and len(ids) > limit:
            message = f"has a target prefix of {len(ids)} tokens, at most {limit} are accepted"
            raise InvalidInput(message, field=field, index=index)
        return ids

    def decode_with_spans(self, token_ids: Sequence[int]) -> tuple[str, list[Span]]:
        """The text of a hypothesis, and the place of each token in it."""
        text, spans = self._tokenizer.decode_with_spans(token_ids)
        return text, list(map(Span._make, spans))

    def _read_back(self, character: str) -> str | None:
        try:
            return self._tokenizer.read_back(character)
        except (RuntimeError, ValueError) as error:
            raise InvalidInput("cannot be split into tokens", field="texts[0]", index=0) from error

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


def _echo(value: str) -> str:
    """Return a caller's value, short and harmless in a message."""
    return ascii(value if len(value) <= _MAX_ECHO else value[:_MAX_ECHO] + "...")


def _too_long(index: int, length: int, unit: str, limit: int) -> TooLong:
    message = f"has {length} {unit}, at most {limit} are accepted"
    return TooLong(message, field=f"texts[{index}]", index=index)
