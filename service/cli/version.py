"""`dragoman version`."""

import typer

from service.cli.options import examples

EPILOG = examples("dragoman version")
_LIBRARIES = ("onnxruntime", "onnxruntime-gpu", "grpcio", "protobuf", "sentencepiece", "numpy")


def version() -> None:
    """Print the versions of Dragoman, Python and the libraries that matter."""
    import platform
    from importlib import metadata

    typer.echo(f"dragoman {metadata.version('dragoman')}")
    typer.echo(f"python {platform.python_version()} ({platform.machine()})")
    for name in _LIBRARIES:
        try:
            typer.echo(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
