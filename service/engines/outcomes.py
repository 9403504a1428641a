"""How a job's future ends: with a result, an error, or nobody who waits for it."""

import asyncio

from service.engine.job import FailureKind, JobFailure, JobResult, Outcome
from service.errors import DeadlineExceeded, DragomanError, InternalError, OutOfMemory

_RETRY_AFTER_MEMORY_S = 1.0  # an engine that had too little memory runs less at once by then


def resolve(future: "asyncio.Future[JobResult]", outcome: Outcome) -> None:
    """Give an outcome to whoever waits; nobody does after a cancellation."""
    if future.done():
        return
    if isinstance(outcome, JobResult):
        future.set_result(outcome)
    else:
        future.set_exception(_error_of(outcome))


def _error_of(failure: JobFailure) -> DragomanError:
    if failure.kind is FailureKind.DEADLINE:
        return DeadlineExceeded(failure.message)
    if failure.kind is FailureKind.OUT_OF_MEMORY:
        return OutOfMemory(failure.message, retry_after_s=_RETRY_AFTER_MEMORY_S)
    return InternalError(failure.message)


def fail(future: "asyncio.Future[JobResult]", error: DragomanError) -> None:
    """Raise an error where somebody still waits."""
    if not future.done():
        future.set_exception(error)


def drop_reason(future: "asyncio.Future[JobResult]", *, is_late: bool) -> str | None:
    """Why a job that is done has no result, as a label; None if it has, or failed otherwise.

    Args:
        is_late: a call that ends now without an answer is at its deadline: that takes its jobs back, as a caller does.
    """
    if future.cancelled():
        return "deadline" if is_late else "cancelled"
    return "deadline" if isinstance(future.exception(), DeadlineExceeded) else None
