"""What calls of every protocol go through in one process: the book of calls, and the way to the models."""

import asyncio
from concurrent.futures import Executor

from service.calls.authentication import authenticator
from service.calls.book import CallBook
from service.config import ServerConfig
from service.queue.admission import Admission
from service.registry.catalogue import Catalogue
from service.registry.glossaries import Glossaries
from service.telemetry.metrics import Metrics
from service.telemetry.observers import CallObserver, SlowCalls, load_traces
from service.translation.account import Account
from service.translation.pipeline import Pipeline
from service.translation.routing import Router


class CallParts:
    """The book and the router of one process."""

    def __init__(
        self,
        config: ServerConfig,
        catalogue: Catalogue,
        admission: Admission,
        metrics: Metrics,
        account: Account,
        executor: Executor,
    ) -> None:
        """Make all parts, or raise ValueError: the file of API keys, a glossary or a library cannot be used.

        Args:
            executor: for texts that are too long for the event loop.
        """
        traces_class = load_traces(config.telemetry)
        self._traces = traces_class.to(config.telemetry.otlp_endpoint or "") if traces_class else None
        observers: list[CallObserver] = [self._traces] if self._traces else []
        slow_s = config.telemetry.slow_request_s
        self.book = CallBook(
            metrics,
            authenticator=authenticator(config.security),
            observers=observers,
            slow_calls=None if slow_s is None else SlowCalls(slow_s, count=metrics.families.slow_requests.inc),
        )
        glossaries = Glossaries(config.models.glossaries, period_s=config.models.watch_period_s)
        self.pipeline = Pipeline(catalogue, admission, account, config.limits, executor, glossaries)
        self.router = Router(self.pipeline, executor)

    async def close_traces(self) -> None:
        """Send the traces that are still to be sent."""
        if self._traces:
            await asyncio.to_thread(self._traces.close)
