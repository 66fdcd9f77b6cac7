"""Names of images: those that every engine accepts, and the fix for the others."""

from __future__ import annotations

import pytest

from elasticdl.errors import SpecError
from elasticdl.image.plan import check_image_name, check_registry, parse_registry


@pytest.mark.parametrize(
    "text",
    ["mnist:1", "me/mnist:v1.2_3", "ghcr.io/me/my-model:1", "localhost:5000/a/b__c:x", "registry:5000/mnist:1"],
)
def test_a_good_name_stays_as_it_is(text: str) -> None:
    assert check_image_name(text) == text


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("mnist", "write mnist:1"),
        ("localhost:5000/mnist", "write localhost:5000/mnist:1"),
        ("MNIST:1", "write 'mnist'"),
        ("https://ghcr.io/me/mnist:1", "write 'ghcr.io/me/mnist:1'"),
        ("mnist@sha256:abc", "write NAME:TAG"),
        ("my model:1", "use a-z and 0-9"),
        ("a//b:1", "use a-z and 0-9"),
        ("-v:1", "use a-z and 0-9"),
        ("mnist:-1", "the tag '-1' may have"),
        ("mnist:" + "x" * 129, "at most 128"),
        ("x" * 256 + ":1", "at most 255"),
        (":1", "use a-z and 0-9"),
    ],
)
def test_a_bad_name_is_refused_with_the_fix(text: str, fix: str) -> None:
    with pytest.raises(SpecError) as refusal:
        check_image_name(text)

    assert fix in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mnist:1", ""),
        ("me/mnist:1", ""),
        ("ghcr.io/me/m:1", "ghcr.io"),
        ("localhost/m:1", "localhost"),
        ("a:5/m:1", "a:5"),
    ],
)
def test_the_registry_is_what_stands_before_the_first_slash_if_it_looks_like_a_host(text: str, expected: str) -> None:
    assert parse_registry(text) == expected


def test_a_name_without_a_registry_is_not_pushed() -> None:
    with pytest.raises(SpecError, match=r"registry\.example\.com/me/mnist:1 or docker\.io/YOU/mnist:1"):
        check_registry("me/mnist:1")
