"""Names for jobs that have none."""

from __future__ import annotations

from datetime import datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.jobs import description
from elasticdl.spec.job import NAME_PATTERN

NOW = datetime(2026, 11, 15, 13, 7)


@given(stem=st.text(max_size=80), seed=st.integers())
def test_any_file_stem_becomes_a_valid_job_name(stem: str, seed: int) -> None:
    assert NAME_PATTERN.fullmatch(description.generate_name(stem, NOW, Random(seed), lambda name: False))


def test_a_name_in_use_is_not_chosen_again() -> None:
    first = description.generate_name("mnist", NOW, Random(0), lambda name: False)

    assert description.generate_name("mnist", NOW, Random(0), lambda name: name == first) != first


@pytest.mark.parametrize(
    ("document", "stem"),
    [
        ({"model": {"definition": "zoo.mnist.forward"}}, "mnist"),
        ({"script": {"path": "/a/b/train.py"}}, "train"),
        ({"model": {"definition": 3}}, "job"),
        ({}, "job"),
    ],
)
def test_a_job_is_named_after_its_model_or_script(document: dict[str, dict[str, object]], stem: str) -> None:
    assert description.name_stem(document) == stem
