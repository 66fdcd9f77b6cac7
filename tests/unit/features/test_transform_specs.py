"""The language of treatments: what is written is what is meant, and nothing is run."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.errors import SpecError
from elasticdl.features import transform_specs
from elasticdl.features.transform_specs import (
    ClipSpec,
    CrossSpec,
    DatePartsSpec,
    DiscretizationSpec,
    DropSpec,
    HashingSpec,
    IndexLookupSpec,
    NormalizerSpec,
    SequenceSpec,
    parse_transform,
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("discretization(quantiles=20)", DiscretizationSpec(quantiles=20)),
        ("discretization(bins=[-1, 0.5, 1e3])", DiscretizationSpec(bins=(-1.0, 0.5, 1000.0))),
        ("normalizer", NormalizerSpec()),
        ("normalizer(log=true)", NormalizerSpec(log=True)),
        ("hashing(num_bins=100000)", HashingSpec(num_bins=100_000)),
        ("index_lookup(min_count=5, max_size=1000)", IndexLookupSpec(min_count=5, max_size=1000)),
        ("cross(C1, C2)", CrossSpec(columns=("C1", "C2"))),
        ('cross("user id", C2, num_bins=10)', CrossSpec(columns=("user id", "C2"), num_bins=10)),
        ("sequence(sep=',', like=C1)", SequenceSpec(sep=",", like="C1")),
        ("date_parts(parts=[hour, month])", DatePartsSpec(parts=("hour", "month"))),
        ("clip(maximum=-2)", ClipSpec(maximum=-2.0)),
        (" drop ", DropSpec()),
    ],
)
def test_a_text_is_parsed_to_a_transform(text: str, meant: transform_specs.TransformSpec) -> None:
    assert parse_transform(text) == meant
    assert parse_transform(str(meant)) == meant


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("discretise(quantiles=20)", "no transform 'discretise'; did you mean discretization?"),
        ("zzz", "no transform 'zzz'; there are normalizer, "),
        ("discretization(quantile=20)", "no option 'quantile'; did you mean quantiles?"),
        ("discretization(quantiles=1)", "quantiles: Input should be greater than or equal to 2"),
        ("discretization(quantiles=5, bins=[1])", "quantiles or bins, not both"),
        ("discretization(20)", "options have names, e.g. discretization"),
        ("hashing()", "num_bins: Field required"),
        ("hashing(num_bins=10, num_bins=20)", "expected each option once"),
        ("hash(**{})", "expected each option once, by its name"),
        ("cross(C1)", "columns: Tuple should have at least 2 items"),
        ("sequence(sep='|')", "either num_bins=N or like=COLUMN"),
        ("hashing(num_bins=__import__('os').getpid())", "nothing computed"),
        ("__import__('os').system('ls')", "expected a transform such as"),
        ("hashing(num_bins=10)(C1)", "expected a transform such as"),
        ("", "expected a transform such as"),
        ("(" * 300, "expected a transform such as"),
    ],
)
def test_an_unknown_transform_is_refused_with_the_nearest_one(text: str, complaint: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_transform(text)
    assert complaint in str(refused.value)


@given(st.text(max_size=30))
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    with suppress(SpecError):
        parse_transform(text)
