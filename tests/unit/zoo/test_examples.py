"""The examples keep the contract and learn; running them as jobs is for the integration tests."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from pathlib import Path

import pytest

from elasticdl.data.interface import RecordSource
from elasticdl.data.sources import open_source
from elasticdl.model import contract, functions
from elasticdl.model.check import check_contract
from elasticdl.spec import DataSpec, JobKind, JobSpec, ModelSpec
from elasticdl.spec.load import make_paths_absolute, read_yaml_file
from elasticdl.zoo.digits import data as digits_data
from elasticdl.zoo.text import data as text_data
from tests.unit.zoo.training import train

EXAMPLES = Path(__file__).parents[3] / "examples"


def sources(example: str, model_contract: contract.Contract, tmp_path: Path) -> tuple[RecordSource, RecordSource]:
    if model_contract.has_function(functions.READER):
        training, test = (
            model_contract.make_reader("training", {"records": 3000}),
            model_contract.make_reader("validation", {"records": 200}),
        )
        assert training is not None and test is not None
        return training, test
    write = text_data.write_data if "transformer" in example else digits_data.write_data
    first, second = write(tmp_path)
    return open_source(str(first), DataSpec()), open_source(str(second), DataSpec())


@pytest.mark.parametrize(
    ("example", "steps", "batch", "chance"),
    [
        ("01-train-a-model", 60, 32, 10),
        ("02-evaluation-and-callbacks", 60, 32, 10),
        ("04-your-own-data", 71, 128, 2),
        ("05-transformer", 40, 32, 128),
    ],
)
def test_an_example_keeps_the_contract_and_learns(
    example: str, steps: int, batch: int, chance: int, tmp_path: Path
) -> None:
    model = ModelSpec(zoo=str(EXAMPLES / example), definition="model.forward")
    assert check_contract(JobSpec(name="job", model=model)) == []
    model_contract = contract.load_contract(model, JobKind.TRAINING)
    training, test = sources(example, model_contract, tmp_path)

    metrics = train(model_contract, training, test, steps, batch)

    # Guessing among `chance` answers loses log(chance); of characters even their frequencies lose 2/3 of it.
    assert metrics["loss"] < (0.64 if chance == 128 else 0.5) * math.log(chance)


def test_the_job_file_of_the_transformer_is_a_whole_job() -> None:
    directory = EXAMPLES / "05-transformer"
    document = make_paths_absolute(read_yaml_file(directory / "job.yaml"), directory)
    spec = JobSpec.model_validate({"name": "text", **document})

    assert check_contract(spec) == []


def test_each_readme_leads_to_the_next_and_shows_commands() -> None:
    directories = sorted(EXAMPLES.glob("[0-9][0-9]-*"))

    assert [path.name[:2] for path in directories] == [
        "01",
        "02",
        "03",
        "04",
        "05",
        "06",
        "07",
        "08",
        "09",
        "10",
        "11",
        "12",
        "13",
    ]
    for here, following in pairwise(directories):
        assert f"](../{following.name})" in (here / "README.md").read_text()
    for path in directories:
        assert re.search(r"```(sh)?\n.+\n```", (path / "README.md").read_text(), re.DOTALL)
