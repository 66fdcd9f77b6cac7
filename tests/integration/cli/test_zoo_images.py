"""`elasticdl zoo build` and `zoo push`, with engines that are scripts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.image.conftest import MakeEngine, engine_script
from tests.unit.cli.conftest import Run

__all__ = ["engine_script"]


def test_a_directory_becomes_an_image_and_the_next_command_is_printed(
    elasticdl: Run, zoo: Path, engine_script: MakeEngine, tmp_path: Path
) -> None:
    calls = engine_script(
        "podman", f'for word in "$@"; do case "$word" in */Dockerfile) cat "$word" > {tmp_path}/seen;; esac; done'
    )

    result = elasticdl(
        "zoo", "build", zoo, "--image", "r.io/digits:1", "--base", "mine:2", "--build-arg", "A=b", "--", "--squash"
    )

    assert result.exit_code == 0, result.stderr
    line = calls.read_text().splitlines()[-1]
    assert line.startswith("build --tag r.io/digits:1 --file ") and line.endswith(f"--squash {zoo}")
    assert "--build-arg A=b" in line
    assert (tmp_path / "seen").read_text().startswith("FROM mine:2\n")
    assert (
        "elasticdl train --image_name=r.io/digits:1 --model_zoo=model_zoo --model_def=digits.forward" in result.stdout
    )
    assert "**/__pycache__" in (zoo / ".dockerignore").read_text()


def test_an_existing_ignore_file_is_kept(elasticdl: Run, zoo: Path, engine_script: MakeEngine) -> None:
    engine_script("podman")
    (zoo / ".dockerignore").write_text("mine\n")

    assert elasticdl("zoo", "build", zoo, "--image", "digits:1", "--base", "mine:2").exit_code == 0

    assert (zoo / ".dockerignore").read_text() == "mine\n"


def test_a_dry_run_builds_and_writes_nothing(elasticdl: Run, zoo: Path, engine_script: MakeEngine) -> None:
    calls = engine_script("buildah")

    result = elasticdl("zoo", "build", zoo, "--image", "digits:1", "--dry-run")

    assert "EXTRAS=torch,kubernetes" in result.stdout
    assert "COPY --chown=10001:10001 . /model_zoo/" in result.stdout
    assert [line.split()[0] for line in calls.read_text().splitlines()] == ["version"]
    assert sorted(path.name for path in zoo.iterdir()) == ["digits.py", "train.csv"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--image", "Digits:1"], "write 'digits'"),
        (["--image", "digits:1", "--engine", "podmann"], "did you mean 'podman'?"),
        (["--image", "digits:1", "--base", "x:1", "--extra", "torch"], "without --extra"),
        (["--image", "digits:1", "--extra", "jax"], "expected one of torch, tensorflow"),
        (["--image", "digits:1", "--build-arg", "A"], "expected NAME=VALUE"),
        (["--image", "digits:1"], "docker: not installed; podman: not installed"),
    ],
)
def test_invalid_arguments_are_refused_with_the_fix(
    elasticdl: Run, zoo: Path, engine_script: MakeEngine, words: list[str], message: str
) -> None:
    result = elasticdl("zoo", "build", zoo, *words)

    assert result.exit_code == 2
    assert message in result.stderr


def test_a_failed_build_ends_with_the_last_lines_of_the_engine(
    elasticdl: Run, zoo: Path, engine_script: MakeEngine
) -> None:
    engine_script("podman", 'if [ "$1" = build ]; then echo "no space left"; exit 125; fi')

    result = elasticdl("zoo", "build", zoo, "--image", "digits:1", "--base", "mine:2")

    assert result.exit_code == 1
    assert result.stderr.endswith("podman build ended with exit code 125; the end of its output:\n  no space left\n")


def test_an_image_is_pushed_to_the_registry_in_its_name(elasticdl: Run, engine_script: MakeEngine) -> None:
    calls = engine_script("docker")

    assert elasticdl("zoo", "push", "r.io/digits:1", "--", "--quiet").exit_code == 0

    assert calls.read_text().splitlines()[-1] == "push --quiet r.io/digits:1"


def test_a_missing_image_is_not_pushed(elasticdl: Run, engine_script: MakeEngine) -> None:
    engine_script("podman", '[ "$1" != image ]')

    result = elasticdl("zoo", "push", "r.io/digits:1")

    assert result.exit_code == 2
    assert "elasticdl zoo build DIR --image r.io/digits:1" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_leaves_no_directory_behind(
    zoo: Path, engine_script: MakeEngine, tmp_path: Path, number: signal.Signals
) -> None:
    engine_script("podman", '[ "$1" = build ] || exit 0; echo begun; exec sleep 60')
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = ["zoo", "build", str(zoo), "--image", "digits:1", "--base", "mine:2"]
    environ = {**os.environ, "TMPDIR": str(temporary)}

    with subprocess.Popen(
        [sys.executable, "-m", "elasticdl.cli", *words], env=environ, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background inherit none
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert any(line == "begun\n" for line in iter(process.stderr.readline, ""))
        assert len(list(temporary.iterdir())) == 1
        process.send_signal(number)
        assert process.wait(30) == 130

    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("verb", ["build", "push"])
def test_the_reference_names_every_option_of_images(elasticdl: Run, verb: str) -> None:
    reference = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    flags = set(re.findall(r"^ +(--[a-z-]+) ", elasticdl("zoo", verb, "--help").output, re.MULTILINE)) - {"--help"}

    assert flags
    assert [
        flag for flag in sorted(flags) if not re.search(rf"^\| `{flag}` \| .*{verb}", reference, re.MULTILINE)
    ] == []
