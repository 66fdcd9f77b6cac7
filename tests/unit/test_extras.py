from __future__ import annotations

import json
from pathlib import Path

import pytest

from elasticdl.extras import InstallOrigin, format_install_command, install_command, parse_origin, reinstall_command

ROOT = Path(__file__).parents[2]
REQUIREMENTS = (
    "click>=8.1",
    'torch>=2.6; extra == "torch"',
    'duckdb>=1.2; extra == "postgres"',
    'psycopg[binary]>=3.1; extra == "postgres"',
)


def clone_at(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "pyproject.toml").write_text('[project]\nname = "elasticdl"\n')
    return path


def test_the_tests_run_from_a_clone_and_the_command_names_it() -> None:
    assert install_command("torch") == f"pip install -e '{ROOT}[torch]'"
    assert reinstall_command() == f"pip install --force-reinstall --no-deps -e '{ROOT}'"


def test_a_copy_installed_from_a_clone_is_installed_from_it_again(tmp_path: Path) -> None:
    clone = clone_at(tmp_path / "a clone")
    record = json.dumps({"url": (tmp_path / "a clone").as_uri(), "dir_info": {}})

    assert parse_origin(record, ()) == InstallOrigin(clone, editable=False)
    assert format_install_command(InstallOrigin(clone), ("torch",)) == f"pip install '{clone}[torch]'"


def test_an_installed_wheel_is_named_with_the_extras(tmp_path: Path) -> None:
    wheel = tmp_path / "elasticdl-0.3.0-cp311-cp311-linux_x86_64.whl"
    wheel.touch()
    record = json.dumps({"url": wheel.as_uri(), "archive_info": {"hash": "sha256=0"}})

    assert format_install_command(parse_origin(record, REQUIREMENTS), ("features", "torch")) == (
        f"pip install '{wheel}[features,torch]'"
    )


@pytest.mark.parametrize("record", [None, '{"url": "file:///recipe/elasticdl-0.3.0.whl", "archive_info": {}}'])
def test_without_clone_or_wheel_the_requirements_of_the_extra_are_named(record: str | None) -> None:
    origin = parse_origin(record, REQUIREMENTS)

    assert format_install_command(origin, ("torch",)) == "pip install 'torch>=2.6'"
    assert format_install_command(origin, ("postgres",)) == "pip install 'duckdb>=1.2' 'psycopg[binary]>=3.1'"


def test_nothing_known_of_the_installation_means_a_clone() -> None:
    assert format_install_command(InstallOrigin(), ("torch",)) == "pip install '.[torch]' in a clone of ElasticDL"
