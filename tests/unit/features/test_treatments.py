"""The language of treatments: what is written is what is meant, and nothing is run."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.errors import SpecError
from elasticdl.features import treatments
from elasticdl.features.treatments import Clip, Cross, Date, Discretize, Drop, Hash, Lookup, Normalize, Sequence, parse


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("discretize(quantiles=20)", Discretize(quantiles=20)),
        ("discretize(bounds=[-1, 0.5, 1e3])", Discretize(bounds=(-1.0, 0.5, 1000.0))),
        ("normalize", Normalize()),
        ("normalize(log=true)", Normalize(log=True)),
        ("hash(bins=100000)", Hash(bins=100_000)),
        ("lookup(min_count=5, most=1000)", Lookup(min_count=5, most=1000)),
        ("cross(C1, C2)", Cross(columns=("C1", "C2"))),
        ('cross("user id", C2, bins=10)', Cross(columns=("user id", "C2"), bins=10)),
        ("sequence(sep=',', like=C1)", Sequence(sep=",", like="C1")),
        ("date(parts=[hour, month])", Date(parts=("hour", "month"))),
        ("clip(maximum=-2)", Clip(maximum=-2.0)),
        (" drop ", Drop()),
    ],
)
def test_a_text_is_a_treatment(text: str, meant: treatments.Treatment) -> None:
    assert parse(text) == meant
    assert parse(str(meant)) == meant


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
        parse(text)
    assert complaint in str(refused.value)


@given(st.text(max_size=30))
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    with suppress(SpecError):
        parse(text)
