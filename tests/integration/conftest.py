"""Real servers for the integration tests."""

from tests.fakes.server_process import echo_bundle, server, start_server

__all__ = ["echo_bundle", "server", "start_server"]
