"""The command line: `dragoman COMMAND`; most commands have a file of their name in this directory.

The file of a command is imported when the command runs, so that `--help` answers at once.

Exit codes:
    0    all went well
    1    translate: some texts failed, their lines are empty; doctor: a check failed; serve: it could not start or run
    2    a wrong option, setting, file, bundle or API key: the same command ends like this again
    3    no answer: the server cannot be reached, is full, too late, or broken; bulk: it has another version in mid-file
    130  Ctrl-C
    141  nobody reads what is printed, as in `dragoman translate | head`
"""

import os
import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from service.cli.output import reported, settle

# gRPC itself writes a line about each connection that begins wrongly, as many as anybody makes.  It reads this when it
# is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

# What `dragoman --help` lists.
COMMANDS = {
    "serve": "Serve the included models, or others, over gRPC and HTTP.",
    "translate": "Translate texts or the lines of a file.",
    "bulk": "Translate a file of any length; a killed run can be continued.",
    "models": "List the models of a server, describe a bundle, or add a model.",
    "status": "Show what a running server is doing.",
    "reload": "Have a running server look at its repository of models again.",
    "log-level": "Change the level of a running server's log.",
    "doctor": "Check whether this machine can serve.",
    "health": "Ask a server whether it serves.",
    "loadtest": "Send calls at a rate and report their latency.",
    "plan": "Say how many replicas hold a p99 at a rate.",
    "keys": "Make API keys for a server.",
    "version": "Print the versions of Dragoman, Python and the libraries that matter.",
}
# Commands that stand in a file with others.
FILES = {"status": "operate", "reload": "operate", "log-level": "operate", "version": "health"}


def command_named(name: str) -> Any:
    """Import the command of this name and return it as typer's command object."""
    module = import_module(f"service.cli.{FILES.get(name, name)}")
    if hasattr(module, "app"):  # a group of commands
        return typer.main.get_command(module.app)
    function = getattr(module, name.replace("-", "_"))
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, epilog=function.epilog)(reported()(function))
    return typer.main.get_command(single)


class _Commands(TyperGroup):
    """The group of all commands; a command is None until it is asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.commands and self.commands[cmd_name] is None:
            self.commands[cmd_name] = command_named(cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    name="dragoman",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # the framed help cuts long option names; errors are one line without it
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def main(prog_name: str = "dragoman") -> None:
    """Run the command line of this process and end it."""
    settle(has_log=sys.argv[1:2] == ["serve"])
    try:
        with reported():  # also of a help page that cannot be written
            app(prog_name=prog_name)
    except typer.Exit as end:
        sys.exit(end.exit_code)


@app.callback()
def dragoman() -> None:
    """Translate text with your own model: a gRPC server with continuous batching, and its client."""
