"""Real builds of images with podman: `make test-cluster`, as root."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster import image

REASON = image.why_not()
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800), pytest.mark.skipif(bool(REASON), reason=REASON)]

# As a pod runs it: another user than root, a root nobody can write, nothing to reach.
AS_A_POD = (*image.RUN, "--read-only", "--user", "10001", "--network", "none")
LOOK = """
import json, os, sys
import elasticdl, elasticdl.ps._native, elasticdl.cli.main, torch, kubernetes
def can_write(path):
    try:
        open(path, "w").close()
    except OSError:
        return False
    return True
print(json.dumps({
    "uid": os.getuid(), "cwd": os.getcwd(), "version": elasticdl.__version__, "torch": torch.__version__,
    "writes": [path for path in ("/x", "/model_zoo/x", "/opt/elasticdl/x", "/tmp/x") if can_write(path)],
    "zoo": sorted(os.listdir("/model_zoo")),
}))
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory with a package of its own and something that must stay out."""
    directory = tmp_path_factory.mktemp("models") / "zoo"
    (directory / "net").mkdir(parents=True)
    (directory / "net" / "net.py").write_text("import torch\ndef forward(): return torch.nn.Linear(2, 2)\n")
    (directory / "requirements.txt").write_text("iniconfig\nnumpy\n")
    (directory / "secret.key").write_text("mine")
    return directory


@pytest.fixture(scope="module")
def built(models: Path) -> str:
    image.make_base()
    name = "localhost/elasticdl-test:1"
    done = image.zoo_build(str(models), "--image", name)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"elasticdl train --image_name={name} --model_zoo=model_zoo --model_def=net.net.forward" in done.stdout
    return name


def test_elasticdl_runs_as_another_user_on_a_read_only_root(built: str) -> None:
    done = image.podman(*AS_A_POD, built, "python", "-c", LOOK)

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["uid"] == 10001
    assert seen["cwd"] == "/"
    assert seen["torch"].startswith("2.13.0")
    assert seen["writes"] == ["/tmp/x"]
    assert seen["zoo"] == ["net", "requirements.txt"]


def test_packages_of_the_directory_are_installed_and_those_of_elasticdl_keep_their_versions(built: str) -> None:
    program = "import iniconfig, numpy; print(numpy.__version__)"

    done = image.podman(*AS_A_POD, built, "python", "-c", program)

    pinned = (image.ROOT / "src/elasticdl/image/recipe/constraints.txt").read_text().splitlines()
    assert f"numpy=={done.stdout.strip()}" in pinned, done.stderr


def test_the_command_is_on_the_path_and_pods_choose_the_role(built: str) -> None:
    done = image.podman(*AS_A_POD, built, "elasticdl", "--version")
    inspected = image.podman("image", "inspect", built)

    assert done.stdout.startswith("elasticdl "), done.stderr
    config = json.loads(inspected.stdout)[0]["Config"]
    assert not config.get("Entrypoint")
    assert config["User"] == "10001:10001"
    assert "PYTHONUNBUFFERED=1" in config["Env"]


def test_building_again_gives_the_same_layers(built: str, models: Path) -> None:
    def layers(name: str) -> list[str]:
        layer_digests = json.loads(image.podman("image", "inspect", name).stdout)[0]["RootFS"]["Layers"]
        assert isinstance(layer_digests, list) and layer_digests
        return layer_digests

    done = image.zoo_build(str(models), "--image", "localhost/elasticdl-test:2")

    assert done.returncode == 0, done.stderr[-4000:]
    assert layers("localhost/elasticdl-test:2") == layers(built)
