"""All models of the zoo, told without a framework: what is told is what they are."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from elasticdl.ctr.models import catalog as clicks
from elasticdl.errors import SpecError
from elasticdl.model.source import detect_framework, parse_source
from elasticdl.zoo import catalog
from elasticdl.zoo.catalog import CLICKS, MODELS, ZooModel

ROOT = Path(__file__).parents[3]
FILES = [one for one in MODELS if one.group != CLICKS]


def test_every_model_file_of_the_zoo_is_listed() -> None:
    found = {
        str(path.relative_to(catalog.ZOO_DIRECTORY))
        for path in catalog.ZOO_DIRECTORY.rglob("*.py")
        if "template" not in path.parts
        and re.search(r"def dataset_fn|^    dataset_fn,$", path.read_text(), re.MULTILINE)
    }

    assert found == {one.file for one in FILES} | {"ctr/ctr.py"}  # which trains what is listed as models of clicks


def test_names_are_there_once() -> None:
    assert len(catalog.MODELS_BY_NAME) == len(MODELS)


@pytest.mark.parametrize("model", [one for one in MODELS if one.framework == "torch"], ids=lambda one: one.name)
def test_parameters_told_from_the_source_are_those_of_the_model(model: ZooModel) -> None:
    if model.group == CLICKS:
        assert model.params == clicks.MODELS_BY_NAME[model.name].params
        return
    module = import_module(f"elasticdl.zoo.{model.file.removesuffix('.py').replace('/', '.')}")
    found = inspect.signature(getattr(module, model.function)).parameters.values()
    assert model.params == {one.name: one.default for one in found}


@pytest.mark.parametrize("model", FILES, ids=lambda one: one.name)
def test_a_model_file_tells_the_command_that_trains_it(model: ZooModel) -> None:
    *_, training = model.commands
    definition = f"{model.file.removesuffix('.py').replace('/', '.')}.{model.function}"

    assert training.startswith(f"elasticdl train --model_zoo={catalog.ZOO_DIRECTORY} --model_def={definition} ")
    assert "--training_data=" in training and "\\" not in training
    assert detect_framework(parse_source(model.path)) == model.framework


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(SpecError, match="did you mean deepfm"):
        catalog.find_model("deepmf")
    with pytest.raises(SpecError, match="elasticdl zoo list"):
        catalog.find_model("zzz")


def test_the_tables_of_the_docs_are_those_of_the_catalog() -> None:
    told = (ROOT / "docs" / "model-zoo.md").read_text().partition("## All of them\n\n")[2]

    assert told == catalog.render_tables(), "run `python -m elasticdl.zoo.catalog`"


def test_listing_needs_no_framework() -> None:
    code = (
        "import sys; from elasticdl.zoo import catalog\n"
        "found = [(one.params, one.commands) for one in catalog.MODELS]\n"
        "sys.exit(bool({'torch', 'tensorflow'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
