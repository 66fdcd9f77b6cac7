"""Text into plain values, never evaluated."""

from __future__ import annotations

import pytest

from elasticdl.errors import SpecError
from elasticdl.spec.parsing import parse_mapping, parse_yaml


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
    with pytest.raises(SpecError, match=r"job.yaml:3:1: not valid YAML: duplicate key 'a'"):
        parse_yaml("a: 1\nb: 2\na: 3\n", "job.yaml")


def test_a_word_like_a_number_stays_a_word() -> None:
    assert parse_yaml("[1e, e5, 1e5x, 0x10, v1e3]", "here") == ["1e", "e5", "1e5x", 16, "v1e3"]


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (bomb(9), "aliases expand to more than 10000 values"),
        ("[" * 100_000, "nested deeper than 100 levels"),
        ("&a [*a]", "an alias of a node that contains it"),
        ("<<: &x {<<: *x}", "an alias of a node that contains it"),
        ('"\\ud800"', "half of a surrogate pair"),
        ("2001-13-99", "month must be in 1..12"),
        ("1" * 5000, "4300 digits"),
        ("!!int ''", "not valid YAML"),
        ("!!bool maybe", "not valid YAML"),
        ("!!timestamp now", "not valid YAML"),
        ("!!python/object/apply:os.getcwd []", "could not determine a constructor"),
    ],
)
def test_no_text_ends_the_process_or_fills_its_memory(text: str, complaint: str) -> None:
    with pytest.raises(SpecError, match=f"here.*{complaint}"):
        parse_yaml(text, "here")


def test_aliases_that_a_user_writes_are_followed() -> None:
    text = "a: &a {cpu: 1}\nb: *a\nc: {<<: *a, memory: 2Gi}\nd: [" + ", ".join(["*a"] * 1000) + "]"

    parsed = parse_yaml(text, "here")

    assert parsed["b"] == {"cpu": 1} and parsed["c"] == {"cpu": 1, "memory": "2Gi"} and len(parsed["d"]) == 1000
