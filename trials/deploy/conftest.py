"""The real server as a process, for what stands in front of it."""

from tests.fakes.server_process import echo_bundle, start_server

__all__ = ["echo_bundle", "start_server"]
