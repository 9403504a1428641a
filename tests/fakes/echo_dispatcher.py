"""A dispatcher without processes whose model says every source again."""

import asyncio
from collections.abc import Sequence

from service.engine.job import FinishReason, Hypothesis, JobResult, SearchParams


class EchoDispatcher:
    """Answers at once, or fails."""

    def __init__(self, score: float = -0.5, error: Exception | None = None) -> None:
        self.score = score
        self.error = error  # of the next start and of every sentence
        self.asked: list[SearchParams] = []
        self.state = "new"

    async def start(self) -> None:
        if self.error:
            raise self.error
        self.state = "started"

    def submit(
        self, source_ids: Sequence[int], params: SearchParams, call: object = None
    ) -> "asyncio.Future[JobResult]":
        self.asked.append(params)
        future: asyncio.Future[JobResult] = asyncio.get_running_loop().create_future()
        if self.error:
            future.set_exception(self.error)
            return future
        best = Hypothesis(
            token_ids=tuple(source_ids[:-1]), score=self.score, finish_reason=FinishReason.END_OF_SENTENCE
        )
        future.set_result(JobResult(job_id=0, hypotheses=(best,), queue_s=0.0, encode_s=0.0, decode_s=0.0, num_steps=1))
        return future

    async def close(self) -> None:
        self.state = "closed"
