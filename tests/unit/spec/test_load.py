"""A job description becomes a JobSpec, or one error that lists all that is wrong."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.errors import SpecError
from elasticdl.spec import load

GOOD = {"name": "digits", "model": {"definition": "digits.forward", "zoo": "/zoo"}}


def complaint(document: dict[str, object], where: str = "") -> str:
    with pytest.raises(SpecError) as caught:
        load.resolve_job(load.merge_documents(GOOD, document), where)
    return str(caught.value)


def test_all_errors_come_at_once_each_with_its_path() -> None:
    message = complaint({"plan": {"epochs": 0, "seed": "x"}, "workers": {"device": "tpu"}, "output": 3})

    assert message.splitlines() == [
        "this job has 4 errors:",
        "  plan.epochs (--num_epochs): expected at least 1; received 0",
        "  plan.seed (--seed): expected a whole number; received 'x'",
        "  workers.device (--device): expected one of 'cpu', 'cuda' or 'auto'; received 'tpu'",
        "  output (--output): expected text (quote it); received 3",
    ]


def test_a_misspelt_key_is_refused_with_the_nearest_name() -> None:
    assert complaint({"workers": {"replcas": 2}}, "job.yaml") == (
        "job.yaml: workers.replcas: unknown key; did you mean 'replicas'?"
    )


@pytest.mark.parametrize("key", ["num_epochs", "num-epochs", "epochs"])
def test_a_key_at_the_wrong_place_is_refused_with_the_right_place(key: str) -> None:
    assert complaint({key: 3}) == f"{key}: unknown key; did you mean 'plan.epochs'?"


def test_an_unrecognisable_key_is_refused_with_the_known_ones() -> None:
    expected = "expected one of directory, every_steps, keep_last, init_from, resume, retry_s"
    assert complaint({"checkpoint": {"zzz": 3}}).endswith(expected)


def test_workers_4_to_2_is_refused_in_one_line() -> None:
    assert complaint({"workers": {"min": 4, "max": 2}}) == "workers: min 4 is above max 2; write them as min <= max"


def test_a_batch_smaller_than_the_logical_ranks_is_refused_with_the_fix() -> None:
    message = complaint({"plan": {"global_batch_size": 3, "logical_ranks": 4}})

    assert message.startswith("plan.global_batch_size: 3 is smaller than the 4 logical ranks")
    assert "--global_batch_size=4" in message


def test_what_does_not_fit_together_is_told_beside_wrong_values() -> None:
    message = complaint({"data": {"shard_records": "many"}, "workers": {"min": 4, "max": 2}})

    assert "data.shard_records (--shard_records): expected a whole number; received 'many'" in message
    assert "workers: min 4 is above max 2" in message


def test_wrong_workers_are_not_blamed_on_the_plan_too() -> None:
    message = complaint({"workers": {"replicas": 9, "min": 4, "max": 2}, "plan": {"logical_ranks": 1}})

    assert "plan" not in message


def test_a_job_without_a_model_names_the_option() -> None:
    with pytest.raises(SpecError, match=r"model: a training job needs model.definition \(--model_def\)"):
        load.resolve_job({"name": "digits"})


def test_a_bad_name_says_which_names_are_good() -> None:
    assert "use 1 to 63 of a-z, 0-9 and '-'" in complaint({"name": "My Job"})


def test_a_yaml_error_has_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: digits\nplan: {epochs: 3]\n")

    with pytest.raises(SpecError, match=r"job\.yaml:2:17: not valid YAML"):
        load.read_yaml_file(file)


@pytest.mark.parametrize(("text", "received"), [("", "nothing"), ("- a\n", "list"), ("hello", "str")])
def test_a_file_that_holds_no_mapping_is_refused(tmp_path: Path, text: str, received: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)

    with pytest.raises(SpecError, match=rf"expected a mapping .* received {received}"):
        load.read_yaml_file(file)


def test_yaml_never_builds_objects(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: !!python/object/apply:os.getcwd []\n")

    with pytest.raises(SpecError, match="not valid YAML"):
        load.read_yaml_file(file)


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(SpecError, match="no such job file"):
        load.read_yaml_file(tmp_path / "job.yaml")
    with pytest.raises(SpecError, match="cannot be read as text"):
        load.read_yaml_file(tmp_path / "model.yaml")


def test_paths_in_a_file_are_meant_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "model: {zoo: ., definition: a.b}\ndata: {training: ../x.csv, validation: 's3://b/c'}\noutput: /o\n"
    )

    document = load.make_paths_absolute(load.read_yaml_file(file), tmp_path)

    assert document["model"]["zoo"] == str(tmp_path)
    assert document["data"] == {"training": str(tmp_path.parent / "x.csv"), "validation": "s3://b/c"}
    assert document["output"] == "/o"


def test_several_data_paths_are_each_meant_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "c,d.csv").touch()

    document = load.make_paths_absolute(
        {"data": {"training": "a.csv, s3://x/b.csv", "validation": "c,d.csv"}}, tmp_path
    )

    assert document["data"]["training"] == f"{tmp_path}/a.csv,s3://x/b.csv"
    assert document["data"]["validation"] == f"{tmp_path}/c,d.csv"


def test_later_layers_win_place_by_place() -> None:
    assert load.merge_documents({"plan": {"epochs": 1, "seed": 2}}, {"plan": {"epochs": 3}}) == {
        "plan": {"epochs": 3, "seed": 2}
    }


@given(
    replicas=st.integers(1, 5),
    epochs=st.integers(1, 9),
    params=st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.one_of(st.booleans(), st.floats(-9, 9))),
)
def test_a_dumped_job_loads_as_itself(replicas: int, epochs: int, params: dict[str, object]) -> None:
    spec = load.resolve_job(
        load.merge_documents(
            GOOD, {"workers": {"replicas": replicas}, "plan": {"epochs": epochs}, "model": {"params": params}}
        )
    )

    assert load.resolve_job(yaml.safe_load(yaml.safe_dump(spec.model_dump(mode="json")))) == spec


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"checkpoint": {"every_steps": 5}}, "checkpoint.every_steps"),
        ({"ps": {"replicas": 1}}, "ps.replicas"),
        ({"plan": {"lr_scaling": "adascale"}}, "plan.lr_scaling"),
    ],
)
def test_what_an_unmodified_script_would_never_hear_of_is_refused(given: dict[str, object], place: str) -> None:
    script = {"path": "train.py", "compat": "ddp"}

    with pytest.raises(SpecError, match=f"{place}.*script.compat=ddp"):
        load.resolve_job({"name": "job", "kind": "script", "script": script, **given})


@pytest.mark.parametrize("path", ["~nobody-of-this-name/x", "x" * 5000, "a,b" * 2000])
def test_a_path_that_cannot_exist_is_anchored_all_the_same(path: str) -> None:
    assert load.make_paths_absolute({"data": {"training": path}, "output": path}, Path("/here"))["output"].startswith(
        "/here/"
    )


def test_a_path_with_a_nul_is_refused() -> None:
    with pytest.raises(SpecError, match="NUL"):
        load.make_paths_absolute({"output": "~\0/x"}, Path("/here"))


def test_an_infinite_parameter_reaches_the_worker_as_it_is() -> None:
    job = load.resolve_job({"name": "a", "model": {"definition": "m.m.f", "params": {"clip": math.inf}}})

    assert job.model is not None
    again = type(job).model_validate_json(job.model_dump_json())
    assert again.model is not None and again.model.params == {"clip": math.inf}
