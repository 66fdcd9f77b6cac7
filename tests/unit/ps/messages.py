"""Messages of every kind, for property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from elasticdl.ps.wire.messages import MessageKind, PsMessage, ReplyStatus, TablePart, WireDtype

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
COPY = st.sampled_from([0, 0, 1]) | U16


@st.composite
def parts(draw: st.DrawFn) -> TablePart:
    ids, rows, columns = draw(st.integers(0, 20)), draw(st.integers(0, 20)), draw(st.integers(0, 5))
    random = np.random.default_rng(ids * 1000 + rows * 10 + columns)
    values = random.standard_normal((rows, columns)).astype(np.float32)
    return TablePart(draw(st.integers(0, 2**16 - 1)), random.integers(-(2**62), 2**62, ids), values)


MESSAGES = st.builds(
    PsMessage, st.sampled_from(MessageKind), U64, U32, st.sampled_from(ReplyStatus),
    st.binary(min_size=16, max_size=16), COPY, U64, U64, U64, U64, st.floats(allow_nan=False),
    st.lists(parts(), max_size=4).map(tuple), st.binary(max_size=50), st.just(WireDtype.FLOAT32), U64,
)  # fmt: skip
