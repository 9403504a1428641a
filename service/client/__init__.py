"""The Python client: `Client` for threads, `AsyncClient` for asyncio.

Both raise the errors of `service.errors`.
"""

from service.client.aio import AsyncClient
from service.client.channel import ClientConfig, TlsOptions, config_from_environment
from service.client.client import Client
from service.records import Priority, TranslateOptions

__all__ = [
    "AsyncClient",
    "Client",
    "ClientConfig",
    "Priority",
    "TlsOptions",
    "TranslateOptions",
    "config_from_environment",
]
