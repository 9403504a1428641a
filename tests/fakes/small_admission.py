"""An admission with limits so small that a test can use them up."""

import pytest

from service.config import LimitsConfig
from service.errors import Overloaded
from service.queue.admission import Admission

LIMITS = LimitsConfig(
    max_texts=3,
    max_concurrent_requests=2,
    max_queued_tokens=100,
    retry_after_s=2.5,
)


@pytest.fixture
def admission() -> Admission:
    """One that is open and empty."""
    return Admission(LIMITS)


def refusal(error: pytest.ExceptionInfo[Overloaded]) -> tuple[str, str, float]:
    """Its words, its reason, and when to come back."""
    return str(error.value), error.value.reason, error.value.retry_after_s
