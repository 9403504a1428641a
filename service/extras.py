"""The optional packages: which ones each extra of pyproject.toml brings, as a message about a missing one says it."""

# As written in a shell.  Not Dragoman itself, which is on no index: `pip install dragoman` would bring whatever
# somebody else calls so.
PACKAGES = {
    "cpu": "onnxruntime",
    "otel": "opentelemetry-sdk opentelemetry-exporter-otlp-proto-grpc",
    "bulk": "pyarrow",
    "documents": "markdown-it-py mdit-py-plugins polib pyyaml",
    "ray": "'ray[data]'",
}


def how_to_install(extra: str) -> str:
    """Return the end of a message about missing packages: the command that brings them, and their extra."""
    return f"`pip install {PACKAGES[extra]}` (extra `{extra}`)"
