"""The plan of a build: names, extras, Dockerfiles, and the suggested command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import elasticdl
from elasticdl.errors import SpecError
from elasticdl.image import plan
from elasticdl.image.model_directory import ModelDirectory, inspect_model_directory

ROOT = Path(__file__).parents[3]
RECIPE = ROOT / "src" / "elasticdl" / "image" / "recipe"
VERSION = elasticdl.__version__


def model_directory(**changes: object) -> ModelDirectory:
    fields: dict[str, object] = {
        "framework": "torch",
        "definition": "m.forward",
        "has_requirements": False,
        "has_ignore_file": True,
    }
    return ModelDirectory(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("extras", "name", "every"),
    [
        (["torch"], f"elasticdl:{VERSION}", "torch,kubernetes"),
        (["kubernetes", "torch"], f"elasticdl:{VERSION}", "torch,kubernetes"),
        (["tensorflow"], f"elasticdl:{VERSION}-tensorflow", "tensorflow,kubernetes"),
        (["operator"], f"elasticdl:{VERSION}-operator", "kubernetes,operator"),
        (["scheduler"], f"elasticdl:{VERSION}-scheduler", "kubernetes,scheduler"),
        (["kubernetes"], f"elasticdl:{VERSION}-kubernetes", "kubernetes"),
    ],
)
def test_each_choice_of_extras_has_a_name_of_its_own(extras: list[str], name: str, every: str) -> None:
    image = plan.plan_runtime_image(extras, {})

    assert (image.name, image.arguments["EXTRAS"]) == (name, every)


def test_another_base_makes_another_name_but_another_index_does_not() -> None:
    plain, index = (
        plan.plan_runtime_image(["torch"], {}),
        plan.plan_runtime_image(["torch"], {"PIP_INDEX_URL": "https://x"}),
    )
    gpu = plan.plan_runtime_image(["torch"], {"BASE": "nvidia/cuda:13"})

    assert plain.name == index.name != gpu.name
    assert gpu.arguments["BASE"] == "nvidia/cuda:13"


def test_an_unknown_extra_is_refused_with_where_packages_go() -> None:
    with pytest.raises(SpecError, match=r"--extra pandas: .* other packages: requirements\.txt"):
        plan.plan_runtime_image(["pandas"], {})


@pytest.mark.parametrize("pair", ["A", "=b", "a-b=c"])
def test_a_build_argument_without_name_or_value_is_refused(pair: str) -> None:
    with pytest.raises(SpecError, match="expected NAME=VALUE"):
        plan.parse_build_arguments([pair])


def test_a_password_in_a_build_argument_is_refused_and_not_repeated() -> None:
    with pytest.raises(SpecError) as refusal:
        plan.parse_build_arguments(["PIP_INDEX_URL=https://me:secret@pypi.example.com/simple"])

    assert "pip.conf" in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_a_build_argument_may_hold_equals_signs_and_nothing() -> None:
    assert plan.parse_build_arguments(["A=b=c", "B="]) == {"A": "b=c", "B": ""}


def test_the_image_of_a_directory_ends_as_the_user_that_is_not_root() -> None:
    assert plan.render_dockerfile("elasticdl:1", model_directory()).splitlines() == [
        "FROM elasticdl:1",
        "USER 0:0",
        "COPY --chown=10001:10001 . /model_zoo/",
        "WORKDIR /",
        "USER 10001:10001",
    ]


def test_packages_are_installed_before_the_models_are_copied() -> None:
    lines = plan.render_dockerfile("elasticdl:1", model_directory(has_requirements=True)).splitlines()
    install = next(number for number, line in enumerate(lines) if line.startswith("RUN python -m pip install"))

    assert lines[install - 1] == "COPY requirements.txt /model_zoo/"
    assert install < lines.index("COPY --chown=10001:10001 . /model_zoo/")


def test_a_directory_is_inspected_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "net.py").write_text(
        "import tensorflow.keras as k\nraise SystemExit\ndef custom_model(): ...\n"
    )
    (tmp_path / "broken.py").write_text("def forward(:")
    (tmp_path / ".hidden.py").write_text("def forward(): ...")
    (tmp_path / "requirements.txt").write_text("")

    models = inspect_model_directory(tmp_path)

    assert models == ModelDirectory(
        "tensorflow", "mnist.net.custom_model", has_requirements=True, has_ignore_file=False
    )
    assert "--model_zoo=model_zoo --model_def=mnist.net.custom_model " in plan.suggest_train_command("m:1", models)


def test_torch_is_what_models_need_unless_they_say_otherwise(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("from torch import nn\nfrom . import keras\ndef forward(): ...\n")

    assert inspect_model_directory(tmp_path).framework == "torch"


@pytest.mark.parametrize(("name", "fix"), [("nothing", "elasticdl zoo init"), ("empty", "has no model")])
def test_a_directory_without_models_is_refused_with_the_fix(tmp_path: Path, name: str, fix: str) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(SpecError, match=fix):
        inspect_model_directory(tmp_path / name)


def test_every_version_of_the_lock_is_that_of_the_constraints() -> None:
    pinned = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (RECIPE / "constraints.txt").read_text(), re.MULTILINE))
    for path in (RECIPE / "requirements").glob("*.txt"):
        locked = dict(re.findall(r"^([\w.-]+)==([\w.]+) ", path.read_text(), re.MULTILINE))
        assert locked and locked.items() <= pinned.items(), path


def test_a_second_index_is_refused() -> None:
    with pytest.raises(SpecError, match="PIP_INDEX_URL"):
        plan.parse_build_arguments(["PIP_EXTRA_INDEX_URL=https://x/simple"])
    assert "extra-index-url" not in (RECIPE / "Dockerfile").read_text().lower()


def test_everything_in_the_image_is_installed_by_hash_on_a_base_by_digest() -> None:
    text = (RECIPE / "Dockerfile").read_text()

    assert "\nARG BASE\n" in text, "the base has no default: zoo build names it by digest"
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${BASE}", "${BASE}"]
    installs = re.findall(r"(?<!pip )install (--[^;]*);", text)
    assert [("--require-hashes" in line) for line in installs] == [True, False, True]
    assert "TORCH_UNLOCKED" in text  # the one without, for builds of torch that are not locked


def test_the_dockerfile_people_look_for_is_the_one_that_is_shipped() -> None:
    assert (ROOT / "deploy" / "Dockerfile").resolve() == (RECIPE / "Dockerfile").resolve()
