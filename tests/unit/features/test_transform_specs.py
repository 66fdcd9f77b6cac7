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
        ("discretize(quantiles=20)", DiscretizationSpec(quantiles=20)),
        ("discretize(bounds=[-1, 0.5, 1e3])", DiscretizationSpec(bounds=(-1.0, 0.5, 1000.0))),
        ("normalize", NormalizerSpec()),
        ("normalize(log=true)", NormalizerSpec(log=True)),
        ("hash(bins=100000)", HashingSpec(bins=100_000)),
        ("lookup(min_count=5, most=1000)", IndexLookupSpec(min_count=5, most=1000)),
        ("cross(C1, C2)", CrossSpec(columns=("C1", "C2"))),
        ('cross("user id", C2, bins=10)', CrossSpec(columns=("user id", "C2"), bins=10)),
        ("sequence(sep=',', like=C1)", SequenceSpec(sep=",", like="C1")),
        ("date(parts=[hour, month])", DatePartsSpec(parts=("hour", "month"))),
        ("clip(maximum=-2)", ClipSpec(maximum=-2.0)),
        (" drop ", DropSpec()),
    ],
)
def test_a_text_is_a_treatment(text: str, meant: transform_specs.TransformSpec) -> None:
    assert parse_transform(text) == meant
    assert parse_transform(str(meant)) == meant


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("discretise(quantiles=20)", "no transformation 'discretise'; did you mean discretize?"),
        ("zzz", "no transformation 'zzz'; there are normalize, "),
        ("discretize(quantile=20)", "no option 'quantile'; did you mean quantiles?"),
        ("discretize(quantiles=1)", "quantiles: Input should be greater than or equal to 2"),
        ("discretize(quantiles=5, bounds=[1])", "quantiles or bounds, not both"),
        ("discretize(20)", "options have names, e.g. discretize"),
        ("hash()", "bins: Field required"),
        ("hash(bins=10, bins=20)", "expected each option once"),
        ("hash(**{})", "expected each option once, by its name"),
        ("cross(C1)", "columns: Tuple should have at least 2 items"),
        ("sequence(sep='|')", "either bins=N or like=COLUMN"),
        ("hash(bins=__import__('os').getpid())", "nothing computed"),
        ("__import__('os').system('ls')", "expected a transformation such as"),
        ("hash(bins=10)(C1)", "expected a transformation such as"),
        ("", "expected a transformation such as"),
        ("(" * 300, "expected a transformation such as"),
    ],
)
def test_what_is_none_is_refused_with_what_it_may_have_meant(text: str, complaint: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_transform(text)
    assert complaint in str(refused.value)


@given(st.text(max_size=30))
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    with suppress(SpecError):
        parse_transform(text)
