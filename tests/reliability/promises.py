"""The promises, row by row: what can go wrong and what holds then.  Tests name their row with `promise("A1")`.

`table.py` prints them with what was seen.  A row with `not_run` has its reason there; one whose tests lie with the
feature that they are about is in `ELSEWHERE`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Promise:
    fault: str
    promise: str
    not_run: str = ""


_GPU = "needs a GPU"

PROMISES: dict[str, Promise] = {
    # The life of the processes.
    "A1": Promise("SIGTERM under load", "every call is OK or UNAVAILABLE; health turns first; exit 0"),
    "A2": Promise("work longer than the grace period", "UNAVAILABLE, and the end within grace + 2 s"),
    "A3": Promise("SIGTERM while loading, with idle connections or open streams", "no hang, no crash, exit 0"),
    "A4": Promise("second SIGTERM", "ends at once, exit status not 0, no traceback"),
    "A5": Promise("SIGKILL of the server, restarted by a supervisor", "a client with the retry policy sees no error"),
    "A6": Promise("SIGKILL of one of two edges", "only its connections are lost; another listens within 2 s"),
    "A7": Promise(
        "engine process killed (SEGV, KILL)", "its calls UNAVAILABLE within 1 s; replaced; not ready meanwhile"
    ),
    "A8": Promise("engine process stuck (STOP)", "deadlines hold; watchdog replaces it; readiness, then liveness off"),
    "A9": Promise("1 MB of text to tokenise", "health checks p99 < 100 ms meanwhile"),
    "A10": Promise("port in use", "exit 1 at once, one line with port and hint; never shared"),
    "A11": Promise("wrong setting, missing bundle", "exit 2, one line: what, where, what is allowed"),
    "A12": Promise("log cannot be written (disk full)", "serving goes on, lost engines are still replaced"),
    "A13": Promise("no file descriptors left", "existing calls finish, new connections again <= 5 s after release"),
    "A14": Promise("wall clock jumps", "no early or late timeout: monotonic clocks only"),
    "A15": Promise(
        "memory runs out", "refused before it does; a failed allocation: its batch RESOURCE_EXHAUSTED, the next call OK"
    ),
    "A16": Promise("one CPU of several", "one thread that computes, no affinity error in the log"),
    # Clients and transport.
    "B1": Promise("cancel while queued", "never computed, its place is free"),
    "B2": Promise("cancel in mid-decode", "rows free at the next step, neighbours' answers the same"),
    "B3": Promise("deadline passes in the queue", "DEADLINE_EXCEEDED, never computed"),
    "B4": Promise("deadline passes in mid-decode", "DEADLINE_EXCEEDED, rows free within a second"),
    "B5": Promise("no deadline", "DEADLINE_EXCEEDED at the server's limit"),
    "B6": Promise("client killed in mid-call", "its rows are free"),
    "B7": Promise("half-open peer", "connection and calls given up within keepalive time + timeout"),
    "B8": Promise("slow reader of a stream", "bounded memory; others are not held up"),
    "B9": Promise("bytes that trickle in", "no place in the engine, others are not held up"),
    "B10": Promise("3,000 idle connections", "little memory, p99 of others unchanged; closed when idle for long"),
    "B11": Promise("HTTP/2 rapid reset", "other calls OK, p99 bounded, memory bounded"),
    "B12": Promise("ping flood", "GOAWAY ENHANCE_YOUR_CALM, others unaffected"),
    "B13": Promise("20 kB of metadata", "RESOURCE_EXHAUSTED, connection stays"),
    "B14": Promise("connections have an age", "GOAWAY, no error for callers"),
    "B15": Promise("retries after refusals", "pushback arrives and is honoured"),
    # Input.
    "C1": Promise("malformed protobuf", "INVALID_ARGUMENT, connection stays, memory flat"),
    "C2": Promise("text that is no UTF-8", "INVALID_ARGUMENT naming the text"),
    "C3": Promise("lone surrogate in a client's str", "refused before the call"),
    "C4": Promise("NUL and control characters", "count as spaces, nothing is cut"),
    "C5": Promise("zero-width and direction characters", "translated; logs escape them"),
    "C6": Promise("text that grows when normalised", "its own INVALID_ARGUMENT, quickly"),
    "C7": Promise("message over the limit", "RESOURCE_EXHAUSTED, others are served"),
    "C8": Promise("gzip bomb", "RESOURCE_EXHAUSTED by decompressed size"),
    "C9": Promise("1,000,000 empty texts", "INVALID_ARGUMENT, bounded memory"),
    "C10": Promise("blank text", "OK with an empty translation"),
    "C11": Promise("one bad text in a list", "its own status, the others are translated"),
    "C12": Promise("unknown model or pair", "NOT_FOUND with those there are"),
    "C13": Promise("unknown method", "UNIMPLEMENTED"),
    "C14": Promise("option out of range", "INVALID_ARGUMENT naming field, value, range"),
    "C15": Promise("fields of a newer client", "ignored"),
    "C16": Promise("a translation that does not end", "cut at max_target_tokens, and says so"),
    # Overload, fairness, endurance.
    "D1": Promise("full queue: 10 calls, room for 8", "exactly 2 RESOURCE_EXHAUSTED, p99 < 10 ms"),
    "D2": Promise(
        "60 s at 2x and 10x capacity", "goodput >= 90 % of that at 1x, refusals < 10 ms, recovery <= 5 s, memory flat"
    ),
    "D2 real": Promise("60 s at 2x the real engine's capacity", "the same"),
    "D3": Promise("deadline that cannot be met", "refused at admission"),
    "D4": Promise("nine clients at 50 % and a greedy tenth at 450 %", "their p99 at most 2.5x what it was alone"),
    "D4 lengths": Promise(
        "clients with short, long and mixed texts at twice the capacity", "equal tokens within 20 %, together >= 90 %"
    ),
    "D5": Promise("interactive and batch work", "interactive first, batch not starved"),
    "D6": Promise("one text of 512 tokens among short ones", "short p99 <= 2 steps + own time"),
    "D7": Promise("120 calls at a limit of 50", "50 OK, 70 RESOURCE_EXHAUSTED"),
    "D8": Promise("soak", "memory flat, nothing lost", "make soak runs it: 20 minutes"),
    "D9": Promise("storm of cancellations", "memory flat, every place comes back"),
    "D10": Promise("batching", "an answer does not depend on what else is in the batch"),
    # Models and devices.
    "E1": Promise("NaN in one sentence", "INTERNAL for that text alone, counted; 64 in a row: another engine"),
    "E2": Promise("graph truncated, empty, random, missing", "the start is refused with the file's name"),
    "E3": Promise("graph that refers to files outside its bundle", "the start is refused"),
    "E4": Promise("malformed tokeniser", "the start is refused"),
    "E5": Promise("tokeniser of another model", "the start is refused"),
    "E6": Promise("reload of a broken model", "the old one keeps serving, the reason is said and counted"),
    "E7": Promise("good reload under load", "no failed call, every answer names its version, memory of one model"),
    "E8": Promise("pickle in a bundle", "refused"),
    "E9": Promise("CUDA asked for and missing", "start refused, or CPU with a warning", _GPU),
    "E10": Promise("CUDA out of memory", "the batch RESOURCE_EXHAUSTED, smaller ones after", _GPU),
    "E11": Promise("GPU lost", "not ready, exit", _GPU),
    "E12": Promise("first requests", "p99 of the first 100 within 2x the steady one"),
    # Security.
    "F1": Promise("no or wrong API key", "UNAUTHENTICATED, before anything is parsed"),
    "F2": Promise("no TLS, wrong CA, expired, other name, no client certificate", "UNAVAILABLE, the server stays up"),
    "F3": Promise("bad key at start; rotation", "exit 2 naming the file; new certificate without restart"),
    "F4": Promise("admin call on the data port", "UNIMPLEMENTED; off by default"),
    "F5": Promise("logs", "no texts, no keys"),
    "F6": Promise("reflection and pages", "can be switched off; 404 elsewhere"),
    # Being observed.
    "G1": Promise("scrape under full load", "<= 250 ms"),
    "G2": Promise("hanging scrapers, 100 at a time", "no effect on calls"),
    "G3": Promise("names without end in labels", "the number of series stays"),
    "G4": Promise("whatever happened above", "received = answered by code + in flight, on every page"),
    "G5": Promise("health under full load", "Check p99 < 100 ms; NOT_FOUND, SERVICE_UNKNOWN"),
    "G6": Promise("SIGKILL of one of two edges", "counters do not go down, gauges forget it, its calls are counted"),
    # Callers over HTTP.
    "H1": Promise("SIGTERM under HTTP calls", "accepted ones 200, later ones 503 with Retry-After, exit 0"),
    "H2": Promise("HTTP caller leaves in mid-decode", "rows free at the next step, neighbours' answers the same"),
    "H3": Promise("deadline of a header passes in mid-decode", "504, rows free"),
    "H4": Promise("bodies that trickle in", "no place in the queue, others not held up, closed after 5 s"),
    "H5": Promise("1,000 silent HTTP connections at a limit of 64", "callers are answered, bounded memory"),
    "H6": Promise("HTTP body over the limit", "413, others are served"),
    # Where it is run.
    "I1": Promise(
        "temporary directory read-only, full or missing", "every call after SERVING answers, by one edge and by two"
    ),
    "I2": Promise(
        "an output is a link, a device, a pipe, of mode 0600, or on a full disk",
        "link followed, device and pipe written to, mode kept, nothing half written, the file named",
    ),
    "I3": Promise(
        "2,000 Watches of 50 clients, and one that opens as many as it can", "calls go through, others' Watches too"
    ),
    "I4": Promise(
        "keepalive pings, each allowed interval", "no call is lost; a client that pings every 100 ms is ended"
    ),
    "I5": Promise("proxy variables", "this machine is never called through one; an error behind one names it"),
    "I6": Promise(
        "nobody reads standard error; probes without end; SIGUSR1",
        "no call waits; at most 20 lines a minute of each edge for what strangers do, all JSON",
    ),
    "I7": Promise("SIGKILL of serve, loadtest, bulk or models add", "none of its processes is there 5 s later"),
    "I8": Promise("memory of the container runs out", "an engine dies, the core lives, its texts are tried once more"),
    "I9": Promise('a host that is "::" or a name', "both ports are reached at IPv4 and at IPv6"),
    "I12": Promise("process 1 of a container", "orphans leave no zombie; SIGTERM: exit 0, nothing is left"),
}

# Rows held by tests of these files; a name stands for all tests that begin with it.
ELSEWHERE: dict[str, tuple[str, ...]] = {
    "A14": ("test_clocks.py::test_no_deadline_rests_on",),
    "B7": ("test_connection_limits.py::test_peer_that_never_answers",),
    "B8": ("test_stream_rpc.py::test_slow_reader_stops",),
    "B12": ("test_connection_limits.py::test_flood_of_pings",),
    "B13": ("test_connection_limits.py::test_metadata_over_the_limit",),
    "B14": ("test_connection_limits.py::test_age_ends_connections",),
    "E2": ("test_bundle_refusals.py::test_graph_that_cannot_be",),
    "E3": ("test_bundle_check.py::test_onnx_runtime_opens_no_graph",),
    "E4": ("test_bundle_refusals.py::test_tokenizer_that_cannot_be",),
    "E5": ("test_bundle_refusals.py::test_tokenizer_that_cannot_be",),
    "E6": (
        "test_model_repository.py::test_version_whose_process_crashes",
        "test_model_repository.py::test_swaps_under_load_good",
    ),
    "E7": ("test_model_repository.py::test_swaps_under_load_good", "test_model_repository.py::test_call_under_way"),
    "F1": ("test_keys_rpc.py::test_a_good_key_opens", "test_keys_rpc.py::test_health_needs_no_key"),
    "F2": (
        "test_tls_rpc.py::test_handshake_failures",
        "test_tls_rpc.py::test_client_without_a_certificate",
    ),
    "F3": (
        "test_tls_rpc.py::test_new_certificates_are_taken",
        "test_tls_rpc.py::test_broken_new_certificate",
        "test_tls_rpc.py::test_file_that_cannot_be_used",
    ),
    "F4": (
        "test_keys_rpc.py::test_admin_methods_are_not",
        "test_admin_rpc.py::test_there_is_no_admin_port",
        "test_admin_rpc.py::test_the_data_port_knows_nothing",
    ),
    "I2": ("test_files.py::test_",),
    "I5": ("test_client_proxy.py::test_", "test_target.py::test_"),
    "F5": ("test_log_contents.py::test_neither_text_nor_key",),
}
