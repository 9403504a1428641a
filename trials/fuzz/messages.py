"""Messages that no proper client sends: random bytes, damaged ones, whole ones with absurd contents; calls and streams.

Pure; the same seed gives the same messages.
"""

import random
from collections.abc import Callable
from typing import TypeAlias

from protos import translation_pb2 as pb

ALPHABETS = (
    "abc .,",
    "äöüß",
    "\u4f60\u597d",
    "\x00\x07\x1b\x7f",
    "\u200b\u202e\ufeff",
    "\ufdfa",
    "\U0001f600",
    " \t\n",
)
NUMBERS = (0, 1, 2, 4, 16, 17, 255, 256, 257, 65_536, 2**31 - 1, 2**32 - 1)
FLOATS = (0.0, -0.0, 1.0, -1.0, 5.0, 5.1, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
# Engines sleep through no step of a long text: a few are enough, or the run waits for them and for nothing else.
LENGTHS = (0, 1, 3, 5, 20, 20, 20, 60)
LONG = (600, 12_000)  # more than a model takes, more than the server does
LONG_SHARE = 0.01
STREAM_LENGTHS = (1, 3, 10, 40, 40)  # messages

Kind: TypeAlias = str  # what a message is, for the report

NAMES = ("", "en", "de", "EN", "xx", "en-de", "echo", "../..", "\u202een", "x" * 200)


def text(seeded: random.Random) -> str:
    """Short mostly; sometimes blank, sometimes longer than any limit."""
    length = seeded.choice(LONG if seeded.random() < LONG_SHARE else LENGTHS)
    return "".join(seeded.choices(seeded.choice(ALPHABETS), k=length))


def whole(seeded: random.Random) -> bytes:
    """A message that parses; each field may be absent, absurd or right."""
    count = 300 if seeded.random() < 0.005 else seeded.choice((1, 1, 1, 2, 3, 0))
    request = pb.TranslateRequest(texts=[text(seeded) for _ in range(count)])
    if seeded.random() < 0.2:
        request.source_language, request.target_language = seeded.choice(NAMES), seeded.choice(NAMES)
    if seeded.random() < 0.1:
        request.model = seeded.choice(NAMES)
    if seeded.random() < 0.4:
        _set_options(request.options, seeded)
    if seeded.random() < 0.2:
        request.priority = seeded.choice((0, 1, 2, 3, 77))  # type: ignore[assignment]  # numbers, also unknown ones
    return request.SerializeToString() + (b"\xfa\x01\x03new" if seeded.random() < 0.1 else b"")  # field 31


def _set_options(options: pb.TranslateOptions, seeded: random.Random) -> None:
    for name in ("beam_size", "num_hypotheses", "max_target_tokens"):
        if seeded.random() < 0.3:
            setattr(options, name, seeded.choice(NUMBERS))
    for name in ("length_penalty", "patience"):
        if seeded.random() < 0.2:
            setattr(options, name, seeded.choice(FLOATS))
    for name in ("use_shortlist", "allow_smaller_beam"):
        if seeded.random() < 0.1:
            setattr(options, name, seeded.random() < 0.5)


def damage(whole_one: bytes, seeded: random.Random) -> bytes:
    """The message with bytes changed, put in, taken out or cut off."""
    data = bytearray(whole_one or b"\x0a\x01a")
    for _ in range(seeded.randint(1, 4)):
        place = seeded.randrange(len(data) or 1)
        match seeded.randrange(4):
            case 0 if data:
                data[place] = seeded.randrange(256)
            case 1:
                data[place:place] = seeded.randbytes(seeded.randint(1, 4))
            case 2:
                del data[place : place + seeded.randint(1, 4)]
            case _:
                del data[place + 1 :]
    return bytes(data)


def noise(seeded: random.Random) -> bytes:
    """Bytes."""
    return seeded.randbytes(seeded.choice((0, 1, 3, 10, 100, 1_000)))


KINDS: dict[Kind, tuple[float, Callable[[random.Random], bytes]]] = {
    "whole": (0.5, whole),
    "damaged": (0.35, lambda seeded: damage(whole(seeded), seeded)),
    "noise": (0.15, noise),
}


def message(seeded: random.Random) -> tuple[Kind, bytes]:
    """One message for a unary call, of a random kind."""
    (kind,) = seeded.choices(list(KINDS), [share for share, _ in KINDS.values()])
    return kind, KINDS[kind][1](seeded)


def conversation(seeded: random.Random) -> list[tuple[Kind, bytes]]:
    """The messages of one stream; a broken one only at the end, as nothing is read after it."""
    count = seeded.choice(STREAM_LENGTHS)
    messages = [("stream whole", _stream_message(number, seeded).SerializeToString()) for number in range(count)]
    match seeded.randrange(8):
        case 0:
            messages.append(("stream damaged", damage(_stream_message(count, seeded).SerializeToString(), seeded)))
        case 1:
            messages.append(("stream noise", noise(seeded)))
        case 2:
            messages.append(("stream disorderly", _disorderly(count, seeded).SerializeToString()))
        case _:
            pass  # an orderly end
    return messages


def _stream_message(number: int, seeded: random.Random) -> pb.TranslateStreamRequest:
    """Some texts, whose ids are no other message's; the first message may have settings."""
    request = pb.TranslateStreamRequest()
    ids = (number, 2**64 - 1 - number)
    for text_id in ids[: seeded.choice((0, 1, 1, 1, 2))]:
        request.texts.add(id=text_id, text=text(seeded))
    if number == 0 and seeded.random() < 0.3:
        request.settings.priority = seeded.choice((0, 1, 2, 3, 77))  # type: ignore[assignment]  # numbers, also unknown ones
        request.settings.options.beam_size = seeded.choice((1, 2, 4))
    return request


def _disorderly(number: int, seeded: random.Random) -> pb.TranslateStreamRequest:
    """A message that parses and breaks a rule: settings again, the same id twice, or too many texts."""
    request = _stream_message(number, seeded)
    match seeded.randrange(3):
        case 0:
            _set_options(request.settings.options, seeded)
            request.settings.model = seeded.choice(NAMES)
        case 1:
            for _ in range(2):
                request.texts.add(id=7, text="the same id")
        case _:
            for place in range(300):
                request.texts.add(id=place, text="")
    return request
