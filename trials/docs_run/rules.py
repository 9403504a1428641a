"""How the documents' commands become ones that can be run here, and which of them are left out, with the reason."""

import re

# By regular expressions; the first that is found in a command counts.
LEFT_OUT = {
    r"^make run$": "sets up .venv in the checkout; `.ci/quick-start` runs it where there is none",
    r"^make (test|check)\b|pre-commit install": "sets up .venv-dev in the checkout; continuous integration runs it",
    r"^make (reliability|fuzz|soak|bench|try-monitoring|deploy-check|try-docs)\b": "a check of its own",
    r"^make .*image|docker": "needs a container engine; `make image try-image` is the check",
    r"^kubectl ": "needs a cluster",
    r"^helm": "needs a cluster; `make deploy-check` lints and renders the chart",
    r"\bhaproxy -f|^envoy -c": "runs until it is stopped, with replicas elsewhere; `make deploy-check` runs it",
    r"^(/opt/dragoman/bin/)?pip |^python3 -m venv|^systemctl": "changes the machine; `make test-wheel` installs",
    r"^(useradd|chown) ": "needs root; trials/deploy compares them with the unit and the image",
    r"^cd examples/node|^node ": "`make try-node` runs the example against the real server",
    r"^python -m model\.(train|evaluate|tools\.(?!attention))|^zcat DATA|--data DATA$": "needs a corpus",
    r"--shortlist shortlist\.csr|tools\.attention runs/": "needs what the command before it makes of a corpus",
    r"DEVICE=cuda|bench[_-]gpu|pip uninstall -y onnxruntime": "needs a GPU; `make bench-gpu` is the check",
    r"^hf |^python -m export import|^dragoman models add|--bundle bundles/": "needs a model of another framework",
    r"import deepl|from google\.cloud|tritonclient": "a client of another service; `make try-clients` runs such",
    r"bench_capacity": "takes 16 minutes and writes a page of the documents",
}

# What stands for something of the reader's, and what is made short; replaced in this order.
REPLACED = {
    ".venv/bin/": "",
    "/opt/dragoman/bin/": "",
    "/etc/dragoman": ".",
    "/etc/systemd": "./systemd",
    "--admin-port 50052": "--admin-port 0",
    "dragoman bulk english.txt": "dragoman bulk --force english.txt",  # german.txt is there
    "--file tatoeba.de": "--file english.txt",
    "--duration 60 --report one.json": "--duration 8 --report one.json",  # a plan needs 30 calls at the lowest rate
    "--duration 60": "",
    "dragoman loadtest": "dragoman loadtest --duration 2 --warm-up 0.5",
    "--find-p99 250": "--find-p99 250 --first-rate 40 --duration 0.6 --warm-up 0.1",
    "grpc.health.v1.Health/Watch": "grpc.health.v1.Health/Watch || [ $? -eq 68 ]",  # its DEADLINE_EXCEEDED
}
SERVES = re.compile(r"(\w+=\S+ )*dragoman serve\b(?!.*--(check|print)-config)")  # and goes on


def reason_to_leave_out(command: str) -> str:
    """Why nobody runs it here; empty if it can be run."""
    return next((reason for pattern, reason in LEFT_OUT.items() if re.search(pattern, command)), "")


def runnable(command: str, addresses: dict[str, str]) -> str:
    """The command with everything replaced; `addresses` are those of the servers that run, by what stands for them."""
    for written, meant in (REPLACED | addresses).items():
        command = command.replace(written, meant)
    return command
