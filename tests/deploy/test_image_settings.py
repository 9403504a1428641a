"""The settings that images bring along: there for who names no file, and gone for who does."""

import re
from pathlib import Path

import pytest

from service.config import ServerConfig, load_config
from tests.fakes.command_line import run
from tests.fakes.server_process import ROOT

DEPLOY = ROOT / "deploy"
IMAGES = {"cpu": DEPLOY / "Dockerfile", "gpu": DEPLOY / "Dockerfile.gpu"}

pytestmark = pytest.mark.skipif(not DEPLOY.exists(), reason="not in a checkout")


def variables(dockerfile: Path) -> dict[str, str]:
    """What it has as ENV of this project's."""
    return dict(re.findall(r"\b(DRAGOMAN_\w+)=(\S+)", dockerfile.read_text()))


@pytest.fixture(params=IMAGES)
def in_image(request, monkeypatch, tmp_path) -> str:
    """The environment of an image, with its file elsewhere; which image it is."""
    kind: str = request.param
    named = variables(IMAGES[kind]).pop("DRAGOMAN_CONFIG")
    assert f"install -m 644 image-{kind}.toml {named} " in IMAGES[kind].read_text()
    monkeypatch.setenv("DRAGOMAN_CONFIG", str(DEPLOY / f"image-{kind}.toml"))
    return kind


def settings(*options: str) -> set[str]:
    """What `--print-config` says, but for what is a default."""
    printed = run("serve", *options, "--print-config")
    assert printed.exit_code == 0, printed.output
    lines = (re.split(r" +# ", line) for line in printed.output.splitlines() if " # " in line)
    return {setting for setting, source in lines if source != "default"}


@pytest.mark.parametrize("kind", IMAGES)
def test_no_setting_of_an_image_is_in_its_environment(kind):
    """There it would be stronger than a file."""
    assert list(variables(IMAGES[kind])) == ["DRAGOMAN_CONFIG"]


def test_image_listens_on_all_its_addresses_whatever_else_it_is_told(in_image):
    own = {'grpc_host = "0.0.0.0"', 'http_host = "0.0.0.0"', "drain_delay_s = 5.0"}
    own |= {'device = "cuda"'} if in_image == "gpu" else set()

    assert settings() == own
    assert settings("--set", "limits.max_texts=7") == own | {"max_texts = 7"}


def test_file_of_kubernetes_and_helm_takes_the_place_of_the_image_s(in_image):
    listed = load_config(DEPLOY / "kubernetes" / "base" / "dragoman.toml")

    found = settings("--config", str(DEPLOY / "kubernetes" / "base" / "dragoman.toml"))

    assert (listed.listen.grpc_host, listed.listen.http_host) == ("0.0.0.0", "0.0.0.0")
    assert "drain_delay_s = 8.0" in found
    assert 'device = "cuda"' not in found
    assert (listed.lifecycle.drain_delay_s, listed.engine) == (8.0, ServerConfig().engine)


def test_file_that_the_variable_names_and_that_is_not_there_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("DRAGOMAN_CONFIG", str(tmp_path / "none.toml"))

    said = run("serve", "--print-config")

    assert said.exit_code == 2
    assert (
        said.stderr == f"dragoman: configuration file {tmp_path}/none.toml cannot be read: No such file or directory\n"
    )
