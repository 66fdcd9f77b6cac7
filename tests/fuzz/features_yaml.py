"""features.yaml: what is read is the same after it is written and read again, or SpecError says what is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from elasticdl.errors import SpecError
from elasticdl.features import features_file, transform_specs
from tests.fuzz.scratch import file_with


def fuzz_one(data: bytes) -> None:
    try:
        features = features_file.load_features_file(file_with(data, "features.yaml"))
    except SpecError as exc:
        str(exc).encode()  # it can be printed
        return
    for transforms in (*features.columns.values(), features.crosses):
        for transform in transforms:
            assert transform_specs.parse_transform(str(transform)) == transform
    # The expansion of aliases is limited, so the result is about as large as the input.
    names = sum(len(names) for names in features.groups.values())
    assert len(features.columns) + names <= len(data) + 10_000


def seeds() -> Iterator[bytes]:
    yield (
        b"version: 1\nlabel: y\ncolumns:\n  C1: hashing(num_bins=1000)\n"
        b"  I1: [normalizer(log=true), missing_indicator()]\n"
    )
    yield (
        b"version: 1\nlabel: y\nstatistics: s.json\ncolumns:\n  a: &x index_lookup(min_count=2, max_size=10)\n  b: *x\n"
        b"  t: date_parts(parts=[hour, weekday])\n  l: sequence(sep='|', like=a)\n"
        b"  d: discretization(bins=[0.5, 1e3])\n"
        b"crosses: [cross(a, b, num_bins=100)]\ngroups: {ids: [a, b]}\n"
    )
    yield b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
