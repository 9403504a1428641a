"""The ranges of the numbers that commands and clients take, with their units.

The settings of a server have theirs in `service.config`.
"""

from dataclasses import dataclass

_MAX_GIVEN = 40  # characters of what was given that a message repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Numbers from `least` to `most`, both included; neither infinity nor what is not a number is one of them."""

    least: float
    most: float
    unit: str = ""  # in the plural
    is_whole: bool = True

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        return f"from {_shown(self.least)} to {_shown(self.most)}{unit}"

    def has(self, number: float) -> bool:
        return self.least <= number <= self.most  # false for nan

    def check(self, name: str, number: float) -> None:
        """Raise ValueError for a number outside of the range."""
        if not self.has(number):
            raise ValueError(f"{name} is {number:g}, {self} is accepted")

    def parse(self, given: str | float) -> float:
        """Return the number that is given; raises ValueError for one outside of the range and for what is no number."""
        try:
            number = int(given) if self.is_whole else float(given)
        except ValueError:
            kind = "whole number" if self.is_whole else "number"
            raise ValueError(f"{given!a:.{_MAX_GIVEN}} is no {kind}; {self} is accepted") from None
        if not self.has(number):
            raise ValueError(f"{given!s:.{_MAX_GIVEN}} is given, {self} is accepted")
        return number


def _shown(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else f"{number:g}"


PORT = Range(least=1, most=65_535)
ANY_PORT = Range(least=0, most=65_535)  # 0: any free one
SECONDS = Range(least=0.001, most=86_400, unit="seconds", is_whole=False)  # of a deadline, or of a stretch of work
WAIT = Range(least=0, most=86_400, unit="seconds", is_whole=False)
OUTAGE = Range(least=0, most=7 * 86_400, unit="seconds", is_whole=False)
MILLISECONDS = Range(least=0.001, most=86_400_000, unit="milliseconds", is_whole=False)
RATE = Range(least=0.001, most=1_000_000, unit="a second", is_whole=False)
TEXTS = Range(least=1, most=100_000, unit="texts")  # of one call: no server takes more
RECORDS = Range(least=1, most=10_000_000, unit="records")  # of one part, which is held in memory
CALLERS = Range(least=1, most=100_000, unit="callers")
REQUESTS = Range(least=1, most=10_000, unit="calls")  # that an answer lists
PROCESSES = Range(least=1, most=1_000, unit="processes")
ENGINES = Range(least=1, most=64, unit="engines")
THREADS = Range(least=1, most=256, unit="threads")
WEIGHT = Range(least=0.001, most=1_000, is_whole=False)
QUEUED_TOKENS = Range(least=1, most=(1 << 53), unit="tokens")
SEED = Range(least=0, most=(1 << 63) - 1)
BYTES = Range(least=1, most=(1 << 31) - 1, unit="bytes")  # gRPC counts in 32 bits
