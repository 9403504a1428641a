"""What a command says when something went wrong: one line on standard error, and an exit code."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from service.cli.streams import NobodyReads
from service.errors import (
    DragomanError,
    FailedPrecondition,
    InvalidInput,
    NotFound,
    PermissionDenied,
    Unauthenticated,
)

EXIT_SOME_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_ANSWER = 3
EXIT_INTERRUPTED = 130
EXIT_NOBODY_READS = 141  # as a shell says it of a program that SIGPIPE ended

# Calling again changes nothing about these; ValueError is what settings and bundles raise.
_USAGE = (InvalidInput, NotFound, FailedPrecondition, Unauthenticated, PermissionDenied, ValueError)


@contextmanager
def reported() -> Iterator[None]:
    """Turn what went wrong inside into one line on standard error and an exit code."""
    try:
        with _printed():
            yield
    except _USAGE as error:
        fail(str(error), EXIT_USAGE)
    except DragomanError as error:
        fail(str(error), EXIT_NO_ANSWER)
    except NobodyReads:
        raise typer.Exit(EXIT_NOBODY_READS) from None
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), EXIT_USAGE)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


@contextmanager
def _printed() -> Iterator[None]:
    """Have everything that was printed written before the end, where an error still has its line and exit code."""
    try:
        yield
    except typer.Exit:
        sys.stdout.flush()
        raise
    sys.stdout.flush()


def fail(message: str, code: int) -> NoReturn:
    """End the command with this line and exit code."""
    typer.echo(f"dragoman: {message}", err=True)
    raise typer.Exit(code)
