"""Each installed engine turns a model directory into an image in a registry: zoo init, zoo build, zoo push."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import image

REASON = image.why_not() or ("" if shutil.which("docker-registry") else "docker-registry is not installed")
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.skipif(bool(REASON), reason=REASON)]

PLAIN = "--tls-verify=false"  # the registry of this test has no certificate
MANIFEST = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"


def why_not(engine: str) -> str:
    """Why an engine cannot be used here, in its own words."""
    if shutil.which(engine) is None:
        return f"{engine} is not installed"
    arguments = ["version", "--format", "{{.Server.Version}}"] if engine == "docker" else ["version"]
    done = subprocess.run([engine, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return f"{engine}: {done.stderr.strip()}" if done.returncode else ""


def elasticdl(*words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(image.ROOT / "src")}
    argv = [sys.executable, "-m", "elasticdl.cli", *words]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)


class Registry:
    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"

    def get(self, path: str) -> Any:
        request = urllib.request.Request(f"http://{self.address}/v2/{path}", headers={"Accept": MANIFEST})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    directory = tmp_path_factory.mktemp("registry")
    with socket.create_server(("127.0.0.1", 0)) as server:
        registry = Registry(server.getsockname()[1])
    settings = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(directory / "images")}},
        "http": {"addr": registry.address},
    }
    (directory / "config.yml").write_text(yaml.safe_dump(settings))
    argv = ["docker-registry", "serve", str(directory / "config.yml")]
    with (directory / "log").open("w") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        deadline = time.monotonic() + 20.0
        while True:
            try:
                registry.get("")
                break
            except OSError:
                assert time.monotonic() < deadline and process.poll() is None, (directory / "log").read_text()
                time.sleep(0.1)
        yield registry
        process.terminate()


@pytest.fixture
def starter(tmp_path: Path) -> Path:
    image.make_base()
    done = elasticdl("zoo", "init", str(tmp_path / "starter"))
    assert done.returncode == 0, done.stderr
    return tmp_path / "starter"


@pytest.mark.parametrize("engine", ["podman", "buildah"])
def test_a_starter_becomes_an_image_in_a_registry(engine: str, registry: Registry, starter: Path) -> None:
    if reason := why_not(engine):
        pytest.skip(reason)
    name = f"{registry.address}/starter-{engine}:1"

    built = elasticdl(
        "zoo", "build", str(starter), "--image", name, "--base", image.BASE, "--engine", engine, "--",
        "--isolation=chroot",
    )  # fmt: skip
    pushed = elasticdl("zoo", "push", name, "--engine", engine, "--", PLAIN)

    assert built.returncode == 0, built.stderr
    assert f"elasticdl train --image_name={name} --model_zoo=model_zoo --model_def=starter.forward" in built.stdout
    assert pushed.returncode == 0 and f"pushed {name}" in pushed.stdout, pushed.stderr
    manifest = registry.get(f"starter-{engine}/manifests/1")
    config = registry.get(f"starter-{engine}/blobs/{manifest['config']['digest']}")
    assert config["config"]["User"] == "10001:10001"
    assert len(manifest["layers"]) >= 2


def test_the_message_of_a_registry_that_refuses_is_shown(registry: Registry, starter: Path) -> None:
    if reason := why_not("podman"):
        pytest.skip(reason)
    name = f"{registry.address}/refused:1"
    elasticdl("zoo", "build", str(starter), "--image", name, "--base", image.BASE, "--engine", "podman")

    done = elasticdl("zoo", "push", name, "--engine", "podman")

    assert done.returncode == 1
    assert "podman push ended with exit code 125" in done.stderr
    assert "server gave HTTP response to HTTPS client" in done.stderr


def test_docker_is_used_or_skipped_with_its_message(starter: Path) -> None:
    reason = why_not("docker")

    wished = elasticdl("zoo", "build", str(starter), "--image", "x:1", "--engine", "docker", "--dry-run")
    any_of_them = elasticdl("zoo", "build", str(starter), "--image", "x:1", "--dry-run")

    assert any_of_them.returncode == 0, any_of_them.stderr
    if not reason:
        assert wished.returncode == 0 and "docker build" in wished.stdout
        pytest.skip("docker answers: it is what is used here")
    assert "podman build" in any_of_them.stdout or "buildah build" in any_of_them.stdout
    assert wished.returncode == 2 and "docker: " in wished.stderr
    assert "Is the docker daemon running" in wished.stderr or "not installed" in wished.stderr
