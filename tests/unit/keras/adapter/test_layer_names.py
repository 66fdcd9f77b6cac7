"""Names that do not depend on what else was built in the process."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.keras.adapter.layer_names import is_generated_name, renumber_paths

parts = st.sampled_from(["dense", "dense_1", "dense_7", "conv2d_3", "C_1", "C_2", "block"])
paths = st.lists(st.builds("/".join, st.lists(parts, min_size=1, max_size=3)), max_size=8)


def test_layers_without_names_are_numbered_in_their_order() -> None:
    made_up = {"dense_5", "dense_7"}

    names = renumber_paths(["dense_5/kernel", "dense_5/bias", "dense_7/kernel"], made_up)

    assert names == ["dense/kernel", "dense/bias", "dense_1/kernel"]


def test_names_that_the_user_has_set_are_kept() -> None:
    assert renumber_paths(["C_2/rows", "C_1/rows"], {"embedding_2"}) == ["C_2/rows", "C_1/rows"]


def test_a_name_counts_inside_its_parent_only() -> None:
    names = renumber_paths(["a/dense_3/kernel", "b/dense_4/kernel"], {"dense_3", "dense_4"})

    assert names == ["a/dense/kernel", "b/dense/kernel"]


@given(paths)
def test_names_are_all_different_whatever_the_paths(paths: list[str]) -> None:
    names = renumber_paths(paths, {"dense_1", "dense_7", "conv2d_3"})

    assert len(set(names)) == len(paths)


@given(paths, st.integers(1, 99))
def test_a_count_that_began_elsewhere_changes_no_name(paths: list[str], shift: int) -> None:
    def later(path: str) -> str:
        return re.sub(r"layer(?:_(\d+))?", lambda m: f"layer_{int(m[1] or 0) + shift}", path)

    first = [f"layer{'_' + str(n) if n else ''}/{path}" for n, path in enumerate(paths)]
    made_up = {f"layer_{n}" for n in range(200)} | {"layer"}

    assert renumber_paths([later(path) for path in first], made_up) == renumber_paths(first, made_up)


def test_generated_names_are_recognized_by_the_class_of_the_layer() -> None:
    assert is_generated_name("max_pooling2d_12", "MaxPooling2D")
    assert is_generated_name("dense", "Dense")
    assert not is_generated_name("dense_layer", "Dense")
    assert not is_generated_name("C_1", "Embedding")
