"""`elasticdl zoo init`: a starter that trains at once, and nothing overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.data.sources import open_source
from elasticdl.errors import SpecError
from elasticdl.model import contract
from elasticdl.model.check import check_contract
from elasticdl.spec import JobSpec
from elasticdl.spec.load import make_paths_absolute, read_yaml_file
from elasticdl.zoo.new_project import create_project
from tests.unit.zoo.training import train


def test_the_starter_is_a_whole_job_that_learns(tmp_path: Path) -> None:
    create_project(tmp_path / "zoo")
    document = make_paths_absolute(read_yaml_file(tmp_path / "zoo" / "job.yaml"), tmp_path / "zoo")
    spec = JobSpec.model_validate({"name": "starter", **document})
    assert check_contract(spec) == []
    assert spec.model is not None and spec.data.training and spec.data.validation
    training, test = (open_source(uri, spec.data) for uri in (spec.data.training, spec.data.validation))

    metrics = train(contract.load_contract(spec.model, spec.kind), training, test, steps=250, batch=64)

    assert metrics["accuracy"] > 0.9


def test_the_next_command_is_printed(tmp_path: Path) -> None:
    assert f"elasticdl train {tmp_path / 'zoo' / 'job.yaml'}" in create_project(tmp_path / "zoo")


def test_an_empty_directory_is_filled(tmp_path: Path) -> None:
    create_project(tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "data", "job.yaml", "starter.py"]


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("keep me")

    with pytest.raises(SpecError, match="not empty"):
        create_project(tmp_path)
    with pytest.raises(SpecError, match="not empty"):
        create_project(tmp_path / "mine.py")

    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]
