"""Jobs by prefix and as `last`, completed by the shell; what `jobs` lists and `stop --delete` removes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from elasticdl.cli.verbs.jobs import format_table
from elasticdl.errors import SpecError
from elasticdl.jobs import home as jobs
from elasticdl.jobs.home import resolve_name
from elasticdl.jobs.kubernetes import submission
from elasticdl.launcher.kubernetes import job_secrets
from elasticdl.spec import load
from elasticdl.spec.directory import JobDirectory
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

NAMES = ["mnist-a", "ctr-1", "mnist-b"]


def make_job(name: str, at: float, **more: Any) -> JobDirectory:
    directory = jobs.job_directory(name)
    directory.create(load.resolve_job({"name": name, "model": {"definition": "digits.forward"}, **more}))
    os.utime(directory.spec, (at, at))
    return directory


@pytest.mark.parametrize(
    ("word", "expected"),
    [("last", "mnist-b"), ("ctr", "ctr-1"), ("mnist-a", "mnist-a"), ("mnist-", None), ("x", None), ("", None)],
)
def test_a_word_is_resolved_to_a_full_name_a_unique_prefix_or_the_newest_job(word: str, expected: str | None) -> None:
    if word == "mnist-":
        with pytest.raises(SpecError, match="several jobs: mnist-a, mnist-b; write more of the name"):
            resolve_name(word, NAMES)
    else:
        assert resolve_name(word, NAMES) == expected


def test_a_full_name_wins_over_a_prefix_and_over_last() -> None:
    assert resolve_name("mnist", ["mnist", "mnist-2"]) == "mnist"
    assert resolve_name("last", ["last", "newer"]) == "last"
    assert resolve_name("last", []) is None


@pytest.mark.parametrize("words", [["status"], ["status", "last"], ["status", "new"], ["status", "newer-job"]])
def test_status_accepts_no_name_last_or_a_prefix(elasticdl: Run, words: list[str]) -> None:
    make_job("newer-job", 2000)
    make_job("older-job", 1000)

    result = elasticdl(*words)

    assert result.exit_code == 0, result.output
    assert "newer-job" in result.stdout and "older-job" not in result.stdout


@pytest.mark.parametrize("verb", ["status", "logs", "timeline", "scale --workers=2", "stop", "ctr report"])
def test_an_ambiguous_prefix_lists_the_candidates(elasticdl: Run, verb: str) -> None:
    make_job("mnist-a", 1000)
    make_job("mnist-b", 2000)

    result = elasticdl(*verb.split(), "mnist")

    assert result.exit_code == 2
    assert "several jobs: mnist-a, mnist-b" in result.stderr


def test_a_full_name_on_the_cluster_wins_over_a_prefix_on_this_machine(elasticdl: Run, cluster: FakeApi) -> None:
    make_job("digits-local", 1000)
    described = {"name": "digits", "model": {"definition": "m.f"}, "cluster": {"image": "i", "namespace": "default"}}
    spec = load.resolve_job(described)
    submission.create_objects(cluster, spec, job_secrets.create_secrets(spec))  # type: ignore[arg-type]
    cluster.run_replica("digits", "worker-0", ["of the cluster"])

    assert "of the cluster" in elasticdl("logs", "digits").stdout


def test_a_prefix_of_a_local_job_is_resolved_even_if_a_cluster_is_configured(elasticdl: Run, cluster: FakeApi) -> None:
    make_job("local-job", 1000)

    assert "local-job" in elasticdl("status", "loc").stdout


@pytest.mark.parametrize("verb", ["train", "run"])
def test_resuming_an_unknown_job_reports_only_that(elasticdl: Run, verb: str) -> None:
    make_job("mnist", 1000)

    result = elasticdl(verb, "--resume", "--job_name=mnits")

    assert result.exit_code == 2
    where = jobs.jobs_directory()
    assert result.stderr == (
        f"error: --resume: there is no job 'mnits' to go on with in {where}; did you mean 'mnist'?\n"
    )


def test_a_job_is_resumed_by_its_prefix(elasticdl: Run) -> None:
    make_job("mnist-20261115-1307-x3", 1000)

    assert "name: mnist-20261115-1307-x3" in elasticdl("train", "--resume", "--job_name=mnist", "--dry-run").stdout


@pytest.mark.parametrize("width", [None, 200, 60, 30, 10])
def test_names_of_jobs_are_never_truncated(width: int | None) -> None:
    name = "wide-and-deep-on-criteo-20261115-1307-x3"
    row = {
        "job": name, "where": "here", "kind": "training", "phase": "running", "workers": "2", "ps": "",
        "records": "1,000 of 2,000", "took": "1:05", "why": "",
    }  # fmt: skip

    header, line = format_table([row], width)

    assert line.startswith(name) and "running" in line
    assert header.startswith("job") and "where" not in header and "ps" not in header
    assert ("1,000 of 2,000" in line) == (width in (None, 200))
    assert width is None or width < 50 or len(line) <= width


def test_a_long_name_shifts_only_its_own_line() -> None:
    row = {
        "where": "here",
        "kind": "",
        "phase": "running",
        "workers": "",
        "ps": "",
        "records": "",
        "took": "",
        "why": "",
    }

    lines = format_table([{"job": "short", **row}, {"job": "long" * 10, **row}], 30)

    assert lines == ["job    phase", "short  running", f"{'long' * 10}  running"]


def test_deleting_a_job_removes_all_but_the_files_outside_its_directory(elasticdl: Run, tmp_path: Path) -> None:
    output = tmp_path / "trained"
    output.mkdir()
    directory = make_job("mnist", 1000, output=str(output))

    result = elasticdl("stop", "mnist", "--delete")

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("mnist: deleted, with its logs and the checkpoints in")
    assert f"is kept: {output}" in result.stdout
    assert not directory.root.exists() and output.exists()
    assert "no jobs yet" in elasticdl("jobs").stdout


def test_deleting_needs_the_full_name(elasticdl: Run) -> None:
    directory = make_job("mnist-1", 1000)

    result = elasticdl("stop", "mnist", "--delete")

    assert result.exit_code == 2 and "write its whole name, mnist-1" in result.stderr
    assert directory.spec.exists()
