"""Addresses that cannot be listened on, and options of gRPC, which ignores one that it does not know."""

import ast
import re
from pathlib import Path

import pytest
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from service.addresses import Address, ListenError, check_free
from service.api.grpc import server
from service.api.grpc.server import grpc_options
from service.config import ServerConfig

SERVICE = Path(server.__file__).parents[1]


def test_address_of_another_machine_is_refused_by_name():
    with pytest.raises(
        ListenError, match=r"192\.0\.2\.1:0 \(listen.grpc_port\): Cannot assign requested address; the machine has"
    ):
        check_free({"listen.grpc_port": Address("192.0.2.1", 0)})  # RFC 5737: nobody's


def argument_names() -> set[str]:
    """Every channel argument that a file of the service names."""
    literals = {
        node.value
        for path in SERVICE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {name for name in literals if re.fullmatch(r"grpc\.(?!health|reflection)[a-z0-9_.]+", name)}


def test_grpc_knows_every_channel_argument_that_is_set():
    library = Path(cygrpc.__file__).read_bytes()
    names = argument_names()

    assert {name for name, _ in grpc_options(ServerConfig())} < names
    assert [name for name in sorted(names) if name.encode() + b"\0" not in library] == []
