"""What images install and which settings they bring along."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from service.cli.operate import DEFAULT_ADMIN_ADDRESS
from service.config import ServerConfig, load_config
from tests.fakes.command_line import run
from tests.fakes.server_process import ROOT

DEPLOY = ROOT / "deploy"
PYTHONS = ("3.11", "3.12", "3.13")  # BASE of the Dockerfiles may have any of them

pytestmark = pytest.mark.skipif(not DEPLOY.exists(), reason="not in a checkout")


def asked_for(variant: str) -> list[Requirement]:
    """By the project, with the extras that `deploy/lock` names for this image; by its build, for `build`."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if variant == "build":
        return [Requirement(line) for line in pyproject["build-system"]["requires"]]
    lock = (DEPLOY / "lock").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^compile pyproject.toml (.*) -o deploy/requirements-{variant}.txt$", lock, re.MULTILINE)
    extras = [pyproject["project"]["optional-dependencies"][name] for name in re.findall(r"--extra (\w+)", line)]
    return [Requirement(text) for group in (pyproject["project"]["dependencies"], *extras) for text in group]


def pinned(variant: str, python: str) -> dict[str, str]:
    """Version by name, of what is installed with this Python on Linux."""
    text = (DEPLOY / f"requirements-{variant}.txt").read_text(encoding="utf-8")
    pins = [Requirement(line.removesuffix("\\")) for line in re.findall(r"^\w.*$", text, re.MULTILINE)]
    here = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    return {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in pins
        if pin.marker is None or pin.marker.evaluate(here)
    }


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("variant", ["cpu", "gpu", "build"])
def test_every_dependency_is_pinned_in_a_version_that_the_project_takes(variant, python):
    """Otherwise: `make lock`."""
    wanted, pins = asked_for(variant), pinned(variant, python)

    assert wanted
    assert [str(one) for one in wanted if canonicalize_name(one.name) not in pins] == []
    assert [str(one) for one in wanted if not one.specifier.contains(pins[canonicalize_name(one.name)])] == []


IMAGES = {"cpu": DEPLOY / "Dockerfile", "gpu": DEPLOY / "Dockerfile.gpu"}
OF_ITS_ENVIRONMENT: dict[str, set[str]] = {"cpu": set(), "gpu": {'device = "cuda"'}}


def variables(dockerfile: Path) -> dict[str, str]:
    """What it has as ENV of this project's."""
    return dict(re.findall(r"\b(DRAGOMAN_\w+)=(\S+)", dockerfile.read_text()))


@pytest.fixture(params=IMAGES)
def in_image(request, monkeypatch, tmp_path) -> str:
    """The environment of an image, with its file elsewhere; which image it is."""
    kind: str = request.param
    has = variables(IMAGES[kind])
    assert f"install -m 644 image.toml {has['DRAGOMAN_CONFIG']} " in IMAGES[kind].read_text()
    for name, value in (has | {"DRAGOMAN_CONFIG": str(DEPLOY / "image.toml")}).items():
        monkeypatch.setenv(name, value)
    return kind


def settings(*options: str) -> set[str]:
    """What `--print-config` says, but for what is a default."""
    printed = run("serve", *options, "--print-config")
    assert printed.exit_code == 0, printed.output
    lines = (re.split(r" +# ", line) for line in printed.output.splitlines() if " # " in line)
    return {setting for setting, source in lines if source != "default"}


def test_no_setting_of_an_image_is_in_its_environment_but_the_device():
    """There a setting is stronger than a file."""
    assert variables(IMAGES["cpu"]).keys() == {"DRAGOMAN_CONFIG"}
    assert variables(IMAGES["gpu"]).keys() == {"DRAGOMAN_CONFIG", "DRAGOMAN_ENGINE__DEVICE"}


def test_image_listens_on_all_its_addresses_whatever_else_it_is_told(in_image):
    own = {'grpc_host = "0.0.0.0"', 'http_host = "0.0.0.0"', "admin_port = 50052", "drain_delay_s = 5.0"}
    own |= OF_ITS_ENVIRONMENT[in_image]

    assert settings() == own
    assert settings("--set", "limits.max_texts=7") == own | {"max_texts = 7"}


def test_file_of_the_chart_takes_the_place_of_the_image_s(in_image):
    file = DEPLOY / "helm" / "dragoman" / "files" / "dragoman.toml"
    listed, found = load_config(file), settings("--config", str(file))

    assert (listed.listen.grpc_host, listed.listen.http_host) == ("0.0.0.0", "0.0.0.0")
    assert {"drain_delay_s = 8.0"} | OF_ITS_ENVIRONMENT[in_image] <= found
    assert replace(listed.engine, device="cpu") == ServerConfig().engine


@pytest.mark.parametrize("file", ["image.toml", "helm/dragoman/files/dragoman.toml"])
def test_admin_port_is_for_commands_inside_the_container_which_find_it_without_being_told(file):
    listen = load_config(DEPLOY / file).listen

    assert listen.admin_host == "127.0.0.1"
    assert f"{listen.admin_host}:{listen.admin_port}" == DEFAULT_ADMIN_ADDRESS
