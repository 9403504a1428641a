"""The Python client."""

from service.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
