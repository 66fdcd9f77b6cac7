"""Policies by name, with parameters."""

from __future__ import annotations

import pytest

from elasticdl.errors import SpecError
from elasticdl.scheduler.policies import POLICY_REGISTRY, load_policy


@pytest.mark.parametrize("name", sorted(POLICY_REGISTRY))
def test_every_policy_is_created_by_its_name_and_reports_it(name: str) -> None:
    assert load_policy(name).name == name


def test_parameters_are_those_of_the_class() -> None:
    assert load_policy("elastic-first-come:interval_s=30").interval_s == 30.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("best", "no policy 'best'; there are"),
        ("elastic-first-come:speed=3", "expected NAME=VALUE with one of name, is_rigid"),
        ("elastic-first-come:interval_s", "received 'interval_s'"),
        ("elastic-first-come:interval_s=soon", "interval_s is a float, received 'soon'"),
    ],
)
def test_a_wrong_name_or_parameter_is_refused_with_a_sentence(text: str, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        load_policy(text)

    assert message in str(refused.value)
