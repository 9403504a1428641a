"""The command line: `dragoman COMMAND`, of which each has its file.

Parses, calls, prints.  Every command imports what it needs when it runs, so that `--help` answers at once.

Exit codes:
    0    all went well
    1    translate: some texts failed, their lines are empty; doctor: a check failed; serve: it could not start or run
    2    a wrong option, setting, file, bundle or API key: the same command ends like this again
    3    no answer: the server cannot be reached, is full, too late, or broken; bulk: it has another version in mid-file
    130  Ctrl-C
"""

import typer

from service.cli import (
    bulk_command,
    doctor_command,
    health_command,
    keys_command,
    loadtest_command,
    log_level_command,
    models_command,
    plan_command,
    reload_command,
    serve_command,
    status_command,
    translate_command,
    version_command,
)
from service.cli.reporting import EXIT_INTERRUPTED, EXIT_NO_ANSWER, EXIT_SOME_FAILED, EXIT_USAGE

__all__ = ["EXIT_INTERRUPTED", "EXIT_NO_ANSWER", "EXIT_SOME_FAILED", "EXIT_USAGE", "app"]

app = typer.Typer(
    name="dragoman",
    help="Translate text with your own model: a gRPC server with continuous batching, and its client.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # the framed help cuts long option names; errors are one line without it
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)

app.command(epilog=serve_command.EPILOG)(serve_command.serve)
app.command(epilog=translate_command.EPILOG)(translate_command.translate)
app.command(epilog=bulk_command.EPILOG)(bulk_command.bulk)
app.command(epilog=models_command.EPILOG)(models_command.models)
app.command(epilog=status_command.EPILOG)(status_command.status)
app.command(epilog=reload_command.EPILOG)(reload_command.reload)
app.command("log-level", epilog=log_level_command.EPILOG)(log_level_command.log_level)
app.command(epilog=doctor_command.EPILOG)(doctor_command.doctor)
app.command(epilog=health_command.EPILOG)(health_command.health)
app.command(epilog=loadtest_command.EPILOG)(loadtest_command.loadtest)
app.command(epilog=plan_command.EPILOG)(plan_command.plan)
app.add_typer(keys_command.app, name="keys")
app.command()(version_command.version)
