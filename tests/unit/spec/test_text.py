"""Text into plain values, never evaluated."""

from __future__ import annotations

import pytest

from elasticdl.errors import SpecError
from elasticdl.spec.text import parse_mapping, parse_yaml


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a=1;b=[1,2]"], {"a": 1, "b": [1, 2]}),
        (["a=1", "b=two", "a=3"], {"a": 3, "b": "two"}),
        (["{a: 1, b: {c: x}}"], {"a": 1, "b": {"c": "x"}}),
        ([" a = 'x;y' ; b = {c: 'd;e'} ;"], {"a": "x;y", "b": {"c": "d;e"}}),
        (["lr=1e-3;wd=1.5E+2;n=-2e5"], {"lr": 1e-3, "wd": 150.0, "n": -2e5}),
        (["flag=true;nothing=;text='1'"], {"flag": True, "nothing": None, "text": "1"}),
        (["code=__import__('os').getcwd()"], {"code": "__import__('os').getcwd()"}),
        ([], {}),
    ],
)
def test_parameters_are_yaml_values(words: list[str], expected: dict[str, object]) -> None:
    assert parse_mapping(words, "--model_params") == expected


@pytest.mark.parametrize("word", ["a", "=1", "a b=1", "a=1;b", "{a: 1", "a=[1", "{1: 2}", "a: 1"])
def test_a_malformed_parameter_is_refused_by_its_option(word: str) -> None:
    with pytest.raises(SpecError, match="--model_params"):
        parse_mapping([word], "--model_params")


def test_a_key_that_stands_twice_is_refused_with_its_line() -> None:
    with pytest.raises(SpecError, match=r"job.yaml:3:1: not valid YAML: 'a' stands twice"):
        parse_yaml("a: 1\nb: 2\na: 3\n", "job.yaml")


def test_a_word_like_a_number_stays_a_word() -> None:
    assert parse_yaml("[1e, e5, 1e5x, 0x10, v1e3]", "here") == ["1e", "e5", "1e5x", 16, "v1e3"]
