"""The log as a test reads it."""

from io import StringIO

import pytest

from service.config import TelemetryConfig
from service.telemetry.logs import configure_logging


@pytest.fixture
def log() -> StringIO:
    """What is logged from here on, a line of JSON for each event."""
    stream = StringIO()
    configure_logging(TelemetryConfig(log_format="json"), stream)
    return stream
