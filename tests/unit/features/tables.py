"""Made-up columns of text, as they come out of files: numbers, codes, dates, sequences, gaps, and rubbish."""

from __future__ import annotations

from hypothesis import strategies as st

_LETTERS = st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f|")
WORDS = st.text(_LETTERS, max_size=6)
WHOLE = st.integers(-1000, 1000).map(str)
REAL = st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: f"{value:.4f}")
SCIENTIFIC = st.floats(-1e9, 1e9, allow_nan=False).map(lambda value: f"{value:.6e}")
DATES = st.datetimes().filter(lambda date: 1900 < date.year < 2900).map(lambda date: f"{date:%Y-%m-%d %H:%M:%S}")
DAYS = st.sampled_from(["2026-02-28", "2024-02-29", "2026-12-31T23:59Z", "1969-12-31"])
NO_DAYS = st.sampled_from(["2026-02-30", "2023-02-29", "2026-13-01", "0000-01-01", "2026-04-31"])
SEQUENCES = st.lists(st.sampled_from(["a", "b", "c'", '"', "\\"]), min_size=1, max_size=4).map("|".join)
GAPS = st.sampled_from([None, "", "  "])

KINDS = (WORDS, WHOLE, REAL, SCIENTIFIC, WHOLE | REAL, DATES, DAYS, DAYS | NO_DAYS, SEQUENCES, WHOLE | WORDS)
CELLS = st.sampled_from(KINDS)


@st.composite
def columns(draw: st.DrawFn) -> list[list[str | None]]:
    """One to four columns of the same length."""
    rows = draw(st.integers(1, 30))
    return [
        draw(st.lists(kind | GAPS if draw(st.booleans()) else kind, min_size=rows, max_size=rows))
        for kind in draw(st.lists(CELLS, min_size=1, max_size=4))
    ]


NAMES = ['a"; DROP TABLE clicks; --', "b'c", "日本 语", "Select", "a.b`\\"]
"""Of columns: whoever pastes them into SQL is found out."""
