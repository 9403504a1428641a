"""The edge: calls and messages in and out of gRPC."""
