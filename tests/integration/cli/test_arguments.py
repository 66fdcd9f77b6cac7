"""Shell completion as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import elasticdl as package
from elasticdl.jobs import home as jobs
from elasticdl.spec import load
from elasticdl.spec.directory import JobDirectory


def make_job(name: str, modified_at: float, **more: Any) -> JobDirectory:
    directory = jobs.job_directory(name)
    directory.create(load.resolve_job({"name": name, "model": {"definition": "digits.forward"}, **more}))
    os.utime(directory.spec, (modified_at, modified_at))
    return directory


@pytest.mark.parametrize("line", ["elasticdl status mn", "elasticdl train --resume --job_name mn"])
def test_the_shell_completes_names_of_jobs_without_heavy_imports(line: str) -> None:
    make_job("mnist-a", 1000)
    make_job("mnist-b", 2000)
    environ = os.environ | {
        "_ELASTICDL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")),
        "PYTHONPATH": str(Path(package.__file__).parents[1]),
    }  # fmt: skip
    program = "import sys; from elasticdl.cli.main import cli\ntry: cli.main([])\nfinally: print(sorted(sys.modules))"

    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert done.stdout.splitlines()[:2] == ["plain,mnist-b", "plain,mnist-a"]
    loaded = done.stdout.splitlines()[2]
    assert [name for name in ("numpy", "grpc", "rich", "pyarrow", "elasticdl.rpc") if f"'{name}'" in loaded] == []
