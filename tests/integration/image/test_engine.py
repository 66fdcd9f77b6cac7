"""The choice of an engine, and its commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.errors import ImageBuildFailed, SpecError
from elasticdl.image.engine import ENGINES, ContainerEngine, find_engine, run_streaming
from tests.integration.image.conftest import MakeEngine

COMMANDS = {
    "docker": "docker build --tag m:1 --file d/Dockerfile "
    "--build-arg A=x y --build-arg SOURCE_DATE_EPOCH=315532800 --network=host zoo",
    "podman": "podman build --tag m:1 --file d/Dockerfile --layers --timestamp 315532800 "
    "--build-arg A=x y --build-arg SOURCE_DATE_EPOCH=315532800 --network=host zoo",
    "buildah": "buildah build --tag m:1 --file d/Dockerfile --layers --timestamp 315532800 "
    "--build-arg A=x y --build-arg SOURCE_DATE_EPOCH=315532800 --network=host zoo",
}


@pytest.mark.parametrize("name", ENGINES)
def test_each_engine_is_called_with_its_own_options(name: str) -> None:
    command = ContainerEngine(name).build_command(
        "m:1",
        dockerfile=Path("d/Dockerfile"),
        context=Path("zoo"),
        arguments={"A": "x y"},
        engine_options=["--network=host"],
    )

    assert " ".join(command) == COMMANDS[name]
    assert "A=x y" in command, "one argument, whatever is in it"
    assert ContainerEngine(name).push_command("r.io/m:1", ["--quiet"]) == [name, "push", "--quiet", "r.io/m:1"]


def test_docker_comes_first_then_podman_then_buildah(engine_script: MakeEngine) -> None:
    engine_script("buildah")
    assert find_engine().name == "buildah"
    engine_script("podman")
    assert find_engine().name == "podman"
    engine_script("docker")
    assert find_engine().name == "docker"
    assert find_engine("buildah").name == "buildah"


def test_an_engine_that_does_not_respond_is_skipped(engine_script: MakeEngine) -> None:
    engine_script("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    engine_script("podman")

    assert find_engine().name == "podman"


def test_without_an_engine_the_error_names_each_and_how_to_install_one(engine_script: MakeEngine) -> None:
    engine_script("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")

    with pytest.raises(SpecError) as refusal:
        find_engine()

    assert "docker: exit code 1: Cannot connect to the Docker daemon (start its daemon)" in str(refusal.value)
    assert "podman: not installed; buildah: not installed" in str(refusal.value)
    assert "apt-get install podman" in str(refusal.value)


def test_an_engine_that_hangs_is_skipped(engine_script: MakeEngine) -> None:
    engine_script("docker", "exec sleep 60")
    engine_script("podman")

    assert find_engine(timeout_s=0.2).name == "podman"


def test_every_line_is_shown_and_the_last_lines_are_in_the_error(engine_script: MakeEngine) -> None:
    engine_script("podman", "n=0; while [ $n -lt 40 ]; do n=$((n+1)); echo line $n; done; echo broken >&2; exit 125")
    shown: list[str] = []

    with pytest.raises(ImageBuildFailed) as failure:
        run_streaming(["podman", "build", "."], shown.append)

    assert shown == [*(f"line {number}" for number in range(1, 41)), "broken"]
    assert str(failure.value).startswith("podman build ended with exit code 125; the end of its output:\n  line 27\n")
    assert str(failure.value).endswith("line 40\n  broken")


def test_an_engine_is_terminated_before_an_interrupted_command_continues(
    engine_script: MakeEngine, tmp_path: Path
) -> None:
    engine_script("podman", f"echo $$ > {tmp_path}/pid; echo begun; exec sleep 60")

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_streaming(["podman", "build", "."], interrupt)

    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
