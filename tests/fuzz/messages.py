"""Messages that a TranslateRequest never was: random bytes, damaged messages, and whole ones with absurd contents.

Pure; the same seed gives the same messages.
"""

import random
from collections.abc import Callable

from google.protobuf.message import DecodeError

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
NAMES = ("", "en", "de", "EN", "xx", "en-de", "echo", "../..", "\u202een", "x" * 200)


def text(seeded: random.Random) -> str:
    """Short mostly; sometimes blank, sometimes longer than any limit."""
    length = seeded.choice((0, 1, 5, 20, 20, 60, 600, 12_000 if seeded.random() < 0.05 else 3))
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


def damaged(seeded: random.Random) -> bytes:
    """A whole message with bytes changed, put in, taken out or cut off."""
    data = bytearray(whole(seeded) or b"\x0a\x01a")
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


KINDS: dict[str, tuple[float, Callable[[random.Random], bytes]]] = {
    "whole": (0.5, whole),
    "damaged": (0.35, damaged),
    "noise": (0.15, noise),
}


def message(seeded: random.Random) -> bytes:
    """One message of a random kind."""
    (make,) = seeded.choices([make for _, make in KINDS.values()], [share for share, _ in KINDS.values()])
    return make(seeded)


def parses(data: bytes) -> bool:
    """Whether the server can make a message of it, which then reaches admission."""
    try:
        pb.TranslateRequest.FromString(data)
    except DecodeError:
        return False
    return True
