"""Real servers for the compatibility tests."""

from tests.fakes.server_process import echo_bundle, start_server

__all__ = ["echo_bundle", "start_server"]
