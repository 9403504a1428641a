"""A client of the scripted server, as a fixture; it needs that one, `running`, too."""

from collections.abc import AsyncIterator

import pytest

from service.client import AsyncClient
from service.client.channel import ClientConfig, RetryPolicy
from tests.fakes.scripted_server import ScriptedServer

QUICK = ClientConfig(timeout_s=10.0, retry=RetryPolicy(initial_backoff_s=0.01, max_backoff_s=0.02))


@pytest.fixture
async def client(running: ScriptedServer) -> AsyncIterator[AsyncClient]:
    """One whose retries do not keep a test waiting."""
    async with AsyncClient(running.address, QUICK) as connected:
        yield connected
