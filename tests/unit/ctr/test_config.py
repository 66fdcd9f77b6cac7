"""ctr.yaml: three keys are enough, and what is wrong is told with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticdl.ctr import config
from elasticdl.ctr.job_description import build_job_description
from elasticdl.errors import SpecError
from elasticdl.spec import load
from elasticdl.spec.parsing import parse_yaml

LEAST = {"data": "clicks.csv", "label": "clicked", "model": "deepfm"}


def parsed(**more: Any) -> config.CtrConfig:
    return config.parse_config({**LEAST, **more}, "ctr.yaml")


def test_three_keys_are_a_job() -> None:
    job = load.resolve_job({"name": "x", **build_job_description(parsed(), Path("/made"), 100_000)})

    assert job.model is not None and job.model.definition == "deepfm.forward"
    assert job.data.training == "clicks.csv#rows=0%:80%"
    assert job.data.validation == "clicks.csv#rows=80%:90%"
    assert (job.ps.replicas, job.output) == (1, "/made/model")
    assert (job.workers.min, job.workers.replicas, job.workers.max) == (1, 2, 2)
    assert job.evaluation.every_steps == job.checkpoint.every_steps == 100_000 // (2 * job.plan.global_batch_size)


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        ({}, ("clicks.csv#rows=0%:80%", "clicks.csv#rows=80%:90%", "clicks.csv#rows=90%:100%")),
        ({"split": [90, 10, 0]}, ("clicks.csv#rows=0%:90%", "clicks.csv#rows=90%:100%", None)),
        ({"test": "t.csv"}, ("clicks.csv#rows=0%:90%", "clicks.csv#rows=90%:100%", "t.csv")),
        ({"validation": "v.csv"}, ("clicks.csv#rows=0%:90%", "v.csv", "clicks.csv#rows=90%:100%")),
        ({"validation": "v.csv", "test": "t.csv"}, ("clicks.csv", "v.csv", "t.csv")),
        ({"split": [100, 0, 0]}, ("clicks.csv", None, None)),
    ],
)
def test_rows_are_split_in_their_order_for_what_is_not_given(more: Any, parts: tuple[str | None, ...]) -> None:
    assert parsed(**more).data_splits == parts


def test_a_model_may_have_its_parameters_with_it() -> None:
    assert parsed(model={"deepfm": {"embedding_dim": 8}}) == parsed(params={"embedding_dim": 8})


def test_settings_under_job_override_all_others() -> None:
    described = build_job_description(
        parsed(workers={"min": 1, "max": 8}, job={"ps": {"mode": "async"}, "plan": {"epochs": 1}}), Path("/m"), 10
    )

    assert described["workers"] == {"min": 1, "replicas": 8, "max": 8}
    assert described["ps"] == {"replicas": 1, "mode": "async", "scale_lr_by_staleness": True, "pipeline_depth": 0}
    assert described["plan"]["epochs"] == 1


def test_asynchronous_pushes_are_damped_by_default() -> None:
    def rates(option: str | None, **ps: Any) -> Any:
        return build_job_description(parsed(job={"ps": ps}), Path("/m"), 10, option)["ps"].get(
            "scale_lr_by_staleness", False
        )

    assert [rates(None), rates("async"), rates(None, mode="async"), rates("hybrid", mode="async")] == [
        False, True, True, False,
    ]  # fmt: skip
    assert not rates("async", scale_lr_by_staleness=False)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"modle": "x"}, "ctr.yaml: modle: unknown key; did you mean 'model'?"),
        ({"training": {"epoch": 3}}, "training.epoch: unknown key; did you mean 'epochs'?"),
        ({"split": [80, 10, 20]}, "that make 100"),
        ({"split": [0, 50, 50]}, "that make 100"),
        ({"model": {"a": {}, "b": {}}}, "one name with its parameters"),
        ({"workers": 0}, "workers"),
        ({"training": {"learning_rate": -1}}, "training.learning_rate: Input should be greater than 0"),
    ],
)
def test_what_is_wrong_is_told(more: Any, complaint: str) -> None:
    with pytest.raises(SpecError) as refused:
        parsed(**more)
    assert complaint in str(refused.value)


def test_missing_keys_are_reported() -> None:
    with pytest.raises(SpecError, match="label: is missing; data, label and model have no default"):
        config.parse_config({"data": "x", "model": "deepfm"}, "ctr.yaml")


def test_a_job_description_is_no_config() -> None:
    assert config.is_ctr_config(LEAST)
    assert not config.is_ctr_config({"name": "x", "data": {"training": "x"}, "label": "y"})
    assert not config.is_ctr_config({"model": {"definition": "m.f"}})


def test_the_file_that_init_writes_means_what_it_says_of_defaults() -> None:
    text = config.render_template(
        "my clicks.csv", "is it clicked?", "deepfm", ["is it clicked?", "I1..I13"], "ctr.yaml", "ctr-ctr"
    )
    parsed = config.parse_config(yaml.safe_load(text), "ctr.yaml")

    assert (parsed.data, parsed.label, parsed.columns[:2]) == (
        "my clicks.csv",
        "is it clicked?",
        ("is it clicked?", "I1"),
    )
    least = config.parse_config(
        {**LEAST, "data": parsed.data, "label": parsed.label, "columns": parsed.columns}, "ctr.yaml"
    )
    assert parsed == least


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"click": 1, "none": 0, "skip": 0}, {"click": 1, "none": 0, "skip": 0}),
        ({1: 1, -1: 0}, {"1": 1, "1.0": 1, "-1": 0, "-1.0": 0}),
    ],
)
def test_the_values_of_a_label_may_be_named(values: dict[Any, int], expected: dict[str, int]) -> None:
    parsed = config.parse_config({**LEAST, "label": {"column": "clicked", "values": values}}, "ctr.yaml")

    assert (parsed.label, parsed.label_values) == ("clicked", expected)


def test_a_bare_yes_of_yaml_is_every_spelling_of_it() -> None:
    text = "{data: clicks.csv, label: {column: clicked, values: {yes: 1, no: 0}}, model: deepfm}"
    label_values = config.parse_config(parse_yaml(text, "ctr.yaml"), "ctr.yaml").label_values

    assert {word: label_values[word] for word in ("yes", "Yes", "TRUE", "no", "False")} == {
        "yes": 1, "Yes": 1, "TRUE": 1, "no": 0, "False": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "label",
    [
        {"column": "clicked"},
        {"column": "clicked", "values": "yes"},
        {"column": "clicked", "values": {"yes": 1}},
        {"column": "clicked", "values": {"yes": 2, "no": 0}},
    ],
)
def test_values_that_are_not_both_classes_are_refused_with_an_example(label: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"values: \{'yes': 1, 'no': 0\}"):
        config.parse_config({**LEAST, "label": label}, "ctr.yaml")


def test_all_wrong_keys_are_reported_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        config.parse_config({**LEAST, "modle": "lr", "training": {"epoch": 1}, "zzz": 1}, "ctr.yaml")

    message = str(caught.value)
    assert message.startswith("ctr.yaml: 3 things are wrong:")
    assert "modle: unknown key; did you mean 'model'?" in message and "training.epoch" in message and "zzz" in message
