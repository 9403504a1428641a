"""A replica's server: how it is set, and that it neither starts nor stays without its replica."""

import importlib.util
import os
import subprocess
import sys

import pytest

from service.config import ConfigError, load_config
from service.ray_serve.edge import add_to_proxy
from service.ray_serve.owned_server import OwnedServer
from service.ray_serve.replica import server_settings
from tests.fakes.server_process import ROOT


def test_a_replica_decides_where_its_server_listens_and_the_user_the_rest():
    settings = server_settings(None, {"engine.threads": 2, "listen.http": True})

    assert (settings["engine.threads"], settings["listen.http"]) == ("2", "true")
    assert (settings["listen.grpc_host"], settings["listen.grpc_port"]) == ("127.0.0.1", "0")
    assert server_settings(None, {})["listen.http"] == "false"


def test_what_a_replica_has_only_by_default_is_the_file_s_or_the_environment_s_to_say(tmp_path, monkeypatch):
    file = tmp_path / "dragoman.toml"
    file.write_text("[listen]\nhttp = true\n")

    assert load_config(file, server_settings(file, {})).listen.http
    monkeypatch.setenv("DRAGOMAN_LISTEN__HTTP", "true")
    assert load_config(None, server_settings(None, {})).listen.http


@pytest.mark.parametrize("place", ["settings", "file", "environment"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("listen.grpc_port", "7"), ("security.trusted_proxies", '"::1"'), ("lifecycle.drain_delay_s", "5")],
)
def test_a_setting_that_a_replica_decides_is_refused_wherever_it_stands(tmp_path, monkeypatch, place, name, value):
    group, _, setting = name.partition(".")
    variable = f"DRAGOMAN_{group}__{setting}".upper()
    file, settings = tmp_path / "dragoman.toml", {}
    match place:
        case "settings":
            settings[name] = value
        case "file":
            file.write_text(f"[{group}]\n{setting} = {value}\n")
            place = f"file {file}"
        case "environment":
            monkeypatch.setenv(variable, value)
            place = f"environment {variable}"

    with pytest.raises(ConfigError) as refused:
        server_settings(file if file.exists() else None, settings)

    assert str(refused.value) == f"{name} ({place}): a replica sets that itself; leave it out"


def test_the_file_that_is_deployed_names_what_is_there():
    yaml = pytest.importorskip("yaml", reason="no PyYAML: make try-ray brings it")
    content = yaml.safe_load((ROOT / "deploy" / "ray" / "serve.yaml").read_text())
    (function,) = content["grpc_options"]["grpc_servicer_functions"]
    (application,) = content["applications"]
    settings = server_settings(None, application["args"]["settings"])

    module, _, name = function.rpartition(".")
    assert getattr(importlib.import_module(module), name) is add_to_proxy
    assert importlib.util.find_spec(application["import_path"].partition(":")[0])
    engine = load_config(None, settings).engine
    (deployment,) = application["deployments"]
    assert (engine.bundle, engine.num_engines, engine.threads) == (None, 1, 1)
    assert deployment["ray_actor_options"]["num_cpus"] == 2  # for two included models


def test_a_server_that_does_not_start_is_told_and_not_waited_for():
    with pytest.raises(RuntimeError, match="ended with status 2 before it served"):
        OwnedServer(("--set", "limits.max_texts=0"), lambda status: None)


def test_a_server_has_no_file_of_settings_that_its_replica_does_not_name(monkeypatch, tmp_path):
    monkeypatch.setenv("DRAGOMAN_CONFIG", str(tmp_path / "none.toml"))

    with pytest.raises(RuntimeError, match="ended with status 0 before it served"):
        OwnedServer(("--print-config",), lambda status: None)


def test_a_server_whose_parent_has_died_already_does_not_start():
    command = [sys.executable, "-m", "service.ray_serve", str(os.getppid()), "version"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (0, "")
