"""What a message says where a package of an extra is missing.

Names the package itself: Dragoman is on no index (pyproject.toml, "Do Not Upload"), so `pip install dragoman` would
bring whatever somebody else calls so.  Knows names; not what is installed, nor what it is for.
"""

# By extra: what a feature cannot do without, as it is written in a shell.
PACKAGES = {
    "cpu": "onnxruntime",
    "otel": "opentelemetry-sdk opentelemetry-exporter-otlp-proto-grpc",
    "bulk": "pyarrow",
    "documents": "markdown-it-py mdit-py-plugins polib pyyaml",
    "ray": "'ray[data]'",
    "loadtest": "matplotlib",
}


def how_to_install(extra: str) -> str:
    """The end of a message: the command that brings the packages, and the extra that they belong to."""
    return f"`pip install {PACKAGES[extra]}` (extra `{extra}`)"
