"""Real servers for the promises."""

from tests.fakes.server_fixtures import echo_bundle, start_server

__all__ = ["echo_bundle", "start_server"]
