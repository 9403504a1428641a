"""What a command says when something went wrong: one line on standard error, and an exit code."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

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

# Calling again changes nothing about these; ValueError is what settings and bundles raise.
_USAGE = (InvalidInput, NotFound, FailedPrecondition, Unauthenticated, PermissionDenied, ValueError)


@contextmanager
def reported() -> Iterator[None]:
    """Turn what went wrong inside into one line on standard error and an exit code."""
    try:
        yield
    except _USAGE as error:
        fail(str(error), EXIT_USAGE)
    except DragomanError as error:
        fail(str(error), EXIT_NO_ANSWER)
    except BrokenPipeError:  # `dragoman translate | head`: nobody reads on
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - else Python complains about the flush at exit
        raise typer.Exit(EXIT_SOME_FAILED) from None
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), EXIT_USAGE)
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def fail(message: str, code: int) -> NoReturn:
    """End the command with this line and exit code."""
    typer.echo(f"dragoman: {message}", err=True)
    raise typer.Exit(code)
