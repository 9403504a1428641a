"""The Python client.  What goes wrong is raised as an error of `service.errors`."""

from service.client.aio import AsyncClient
from service.client.channel import ClientConfig, RetryPolicy, TlsOptions, config_from_environment
from service.client.client import Client
from service.queue.callers import Priority
from service.records import TranslateOptions

__all__ = [
    "AsyncClient",
    "Client",
    "ClientConfig",
    "Priority",
    "RetryPolicy",
    "TlsOptions",
    "TranslateOptions",
    "config_from_environment",
]
