"""What operators ask of a running server through its admin port: its status, a reload of its models, a log level."""

import json
from types import TracebackType
from typing import Annotated, Any, Self, cast

import grpc
import typer
from google.protobuf.message import Message
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from protos import admin_pb2 as pb
from protos.admin_pb2_grpc import AdminServiceStub
from service.cli.options import AdminServer, AsJson, Connection, ranged, with_examples, with_options
from service.client.channel import ClientConfig, call_metadata, open_direct_channel
from service.client.failures import CLOSED, domain_error, explained
from service.errors import DeadlineExceeded, Unavailable
from service.ranges import REQUESTS, SECONDS

DEFAULT_ADMIN_ADDRESS = "127.0.0.1:50052"
_SWITCH_ON = "the admin port is off by default, switch it on with `dragoman serve --admin-port 50052`"
_WIDTH = 120  # where no terminal says how wide it is
_STATE_STYLES = {"serving": "green", "up": "green", "loading": "yellow", "starting": "yellow", "draining": "yellow"}


@with_examples(
    "dragoman serve --admin-port 50052",
    "dragoman status",
    "dragoman status --server 127.0.0.1:50052 --json",
)
@with_options
def status(
    *,
    server: AdminServer = DEFAULT_ADMIN_ADDRESS,
    connection: Connection,
    as_json: AsJson = False,
    requests: Annotated[int, ranged(REQUESTS, help="Calls to list, oldest first.")] = 20,
) -> None:
    """Show what a running server is doing: calls with age and phase, queue, engines.

    It asks the server's admin port, which is off by default: `dragoman serve --admin-port 50052`.
    """
    with AdminClient(server, connection.client_config()) as client:
        answer = client.status(requests)
    if as_json:
        print(json.dumps(as_fields(answer), indent=2))
    else:
        console = Console(highlight=False)
        console.width = console.width if console.is_terminal else _WIDTH
        console.print(report(answer))


@with_examples("dragoman reload", "dragoman reload --model en-de --server 127.0.0.1:50052")
@with_options
def reload(
    *,
    model: Annotated[str, typer.Option(help="Only this one.  [default: all]")] = "",
    timeout: Annotated[float, ranged(SECONDS, help="For loading and self-test.")] = 600.0,
    server: AdminServer = DEFAULT_ADMIN_ADDRESS,
    connection: Connection,
) -> None:
    """Have a running server look at its repository of models again, as SIGHUP does, and wait for the outcome.

    Exit code 0: every change was made; 2: a bundle was refused, and what was loaded before keeps serving, or a wrong
    API key; 3: no answer.
    """
    with AdminClient(server, connection.client_config()) as client:
        changes = client.reload_models(model, timeout).changes
    for change in changes:
        typer.echo(f"{change.name} {change.version}: {change.result}")


@with_examples("dragoman log-level debug", "dragoman log-level info --server 127.0.0.1:50052")
@with_options
def log_level(
    *,
    level: Annotated[str, typer.Argument(metavar="LEVEL", help="debug, info, warning or error.")],
    server: AdminServer = DEFAULT_ADMIN_ADDRESS,
    connection: Connection,
) -> None:
    """Change the level of a running server's log, until its next start."""
    with AdminClient(server, connection.client_config()) as client:
        previous = client.set_log_level(level)
    typer.echo(f"{previous} -> {level}")


class AdminClient:
    """Calls a server's admin port and blocks until it answers; raises DragomanError where there is no answer."""

    def __init__(self, address: str = DEFAULT_ADMIN_ADDRESS, config: ClientConfig | None = None) -> None:
        self.address = address
        self._config = config or ClientConfig()
        self._channel = open_direct_channel(address, self._config)
        self._stub: Any = AdminServiceStub(self._channel)

    def status(self, max_requests: int = 0, timeout_s: float = 5.0) -> pb.GetStatusResponse:
        """Return what the server is doing now; see the contract."""
        request = pb.GetStatusRequest(max_requests=max_requests)
        return cast("pb.GetStatusResponse", self._call(self._stub.GetStatus, request, timeout_s))

    def reload_models(self, model: str = "", timeout_s: float = 600.0) -> pb.ReloadModelsResponse:
        """Have the server look at its models again; raises FailedPrecondition if a bundle was refused."""
        request = pb.ReloadModelsRequest(model=model)
        return cast("pb.ReloadModelsResponse", self._call(self._stub.ReloadModels, request, timeout_s))

    def set_log_level(self, level: str, timeout_s: float = 5.0) -> str:
        """Change the level of the server's log and return the level before."""
        return str(self._call(self._stub.SetLogLevel, pb.SetLogLevelRequest(level=level), timeout_s).previous)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, method: Any, request: object, timeout_s: float) -> Any:
        SECONDS.check("timeout_s", timeout_s)
        try:
            return method(request, timeout=timeout_s, metadata=call_metadata(self._config))
        except ValueError as error:  # gRPC's word for a channel that is closed
            raise Unavailable(CLOSED) from error
        except grpc.RpcError as error:
            match error.code():
                case grpc.StatusCode.UNIMPLEMENTED:
                    why = f"the server at {self.address} has no admin service there"
                case grpc.StatusCode.UNAVAILABLE:
                    why = f"no admin port answers at {self.address} ({explained(error.details())})"
                case grpc.StatusCode.DEADLINE_EXCEEDED:
                    why = f"no answer from the admin port at {self.address} within {timeout_s:g} s"
                    raise DeadlineExceeded(why) from error
                case _:
                    raise domain_error(error) from error
            raise Unavailable(f"{why}; {_SWITCH_ON}") from error


def report(status: pb.GetStatusResponse) -> RenderableType:
    """Return the answer for people."""
    parts: list[RenderableType] = [_summary(status), _models(status)]
    if any(model.engines for model in status.models):
        parts.append(_engines(status))
    if status.requests:
        parts.append(_requests(status))
    return Group(*parts)


def as_fields(message: Message) -> dict[str, object]:
    """Return the message for JSON: every field, and large numbers as numbers; protobuf's own mapping has strings."""

    def plain(value: object) -> object:
        if isinstance(value, str | int | float):
            return value
        return as_fields(value) if isinstance(value, Message) else [plain(item) for item in cast("list[object]", value)]

    return {field.name: plain(getattr(message, field.name)) for field in message.DESCRIPTOR.fields}


def _summary(status: pb.GetStatusResponse) -> Text:
    text = Text(f"dragoman {status.version}, pid {status.pid}, ")
    text.append(status.state, style=_STATE_STYLES.get(status.state, "red"))
    share = 100 * status.admitted_tokens / status.max_admitted_tokens if status.max_admitted_tokens else 0.0
    facts = (
        f"up {duration(status.uptime_s)}",
        f"{status.num_requests} calls",
        f"{status.admitted_tokens:,} of {status.max_admitted_tokens:,} tokens admitted ({share:.0f} %)",
        f"{status.queued_work_s:.1f} s of work queued",
        f"event loop {1e3 * status.event_loop_lag_s:.0f} ms late",
        f"log level {status.log_level}",
    )
    return text.append("; " + "; ".join(facts))


def _models(status: pb.GetStatusResponse) -> Table:
    table = _table("MODEL", "VERSION", "STATE", "FROM", "TO", "PRECISION", "DEVICE", "SHA256", "QUEUED", "TOKENS")
    for model in status.models:
        what = (model.source_language, model.target_language, model.precision, model.device, model.sha256_12)
        counts = (str(model.queued_jobs), str(model.queued_tokens))
        table.add_row(model.name, model.version, _state(model.state), *what, *counts)
        if model.reason:
            table.add_row("", "", Text(model.reason, style="red"))
    return table


def _engines(status: pb.GetStatusResponse) -> Table:
    table = _table("ENGINE OF", "PID", "STATE", "SENTENCES", "ROWS", "OF", "LOST", "SILENT")
    for model in status.models:
        for engine in model.engines:
            counts = (str(engine.jobs), str(engine.rows), str(engine.max_rows), str(engine.restarts))
            pid = str(engine.pid or "-")
            name = f"{model.name} {model.version}"
            table.add_row(name, pid, _state(engine.state), *counts, duration(engine.silent_s))
    return table


def _requests(status: pb.GetStatusResponse) -> Table:
    title = f"{len(status.requests)} of {status.num_requests} calls, oldest first"
    table = _table("AGE", "LEFT", "PHASE", "DONE", "METHOD", "MODEL", "CLIENT", "REQUEST ID", title=title)
    for call in status.requests:
        done = f"{call.finished_texts} of {call.texts}" if call.texts else ""
        method = call.method.rpartition("/")[2]
        client = f"{call.client} ({call.client_source})" if call.client_source else call.client
        names = (call.model, client, call.request_id)
        table.add_row(duration(call.age_s), duration(call.remaining_s), call.phase, done, method, *names)
    return table


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _state(state: str) -> Text:
    return Text(state, style=_STATE_STYLES.get(state, "red"))


def duration(seconds: float) -> str:
    """Return the duration with two significant figures: 83 ms, 1.4 s, 12 min, 3.5 h, 2 d."""
    if seconds < 1.0:
        return f"{seconds * 1e3:.0f} ms"
    for limit, unit, size in ((120, "s", 1), (7_200, "min", 60), (172_800, "h", 3_600)):
        if seconds < limit:
            value = seconds / size
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"
