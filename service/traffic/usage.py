"""What each client has used, for quotas and bills: counted, and one line in the log for each call.

Never texts.  A metric names only clients that the operator has named (`Client.source` is "key"): addresses, and words
of a proxy, would be labels without end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from service.telemetry.families import OTHER
from service.telemetry.logs import get_logger
from service.traffic.clients import Client
from service.translation import Translation


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was used; only what was answered counts."""

    texts: int  # with a translation, blank ones included
    characters: int  # of those
    source_tokens: int  # end-of-sentence included
    target_tokens: int  # of all hypotheses that were returned
    row_steps: int  # beam x decoder steps


class UsageCounter(Protocol):
    """What counts; `service.telemetry.metrics.Metrics` does."""

    def client_used(
        self, client: str, *, texts: int, characters: int, source_tokens: int, target_tokens: int, row_steps: int
    ) -> None:
        """Add to a client's counts."""
        ...


def usage_of(texts: Sequence[str], translations: Sequence[Translation]) -> Usage:
    """What these texts and their translations, in the same order, come to."""
    answered = [(text, found) for text, found in zip(texts, translations, strict=True) if found.error is None]
    return Usage(
        texts=len(answered),
        characters=sum(len(text) for text, _ in answered),
        source_tokens=sum(found.source_tokens for _, found in answered),
        target_tokens=sum(item.target_tokens for _, found in answered for item in found.hypotheses),
        row_steps=sum(found.row_steps for _, found in answered),
    )


def count_usage(counter: UsageCounter, client: Client, usage: Usage) -> None:
    """Put it in the books and in the log."""
    amounts = {name: getattr(usage, name) for name in Usage.__slots__}
    counter.client_used(label_of(client), **amounts)
    get_logger().info("usage", client=client.name, client_source=client.source, **amounts)


def label_of(client: Client) -> str:
    """The client's name in metrics."""
    return client.name if client.source == "key" else OTHER
