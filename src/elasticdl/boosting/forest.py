"""Trees that several boosters grew, as one model: the bytes of a booster that grew them all.

Each round of membership has a booster of its own, which begins with base margins instead of the trees before it. A
model is put together as text, from XGBoost's own JSON. Its keys cannot be mistaken: in names XGBoost escapes quotation
marks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xgboost import Booster

from elasticdl.errors import ModelError

_TREES = re.compile(
    r'(?P<head>.*"gbtree_model_param":\{[^}]*"num_trees":")(?P<count>\d+)(?P<middle>"\},"iteration_indptr":\[)'
    r'(?P<rounds>[\d,]*)(?P<info_key>\],"tree_info":\[)(?P<info>[\d,]*)(?P<trees_key>\],"trees":\[)(?P<trees>.*)'
    r'(?P<tail>\]\},"name":"gbtree"\}.*)',
    re.DOTALL,
)
_TREE_NUMBER = re.compile(r'"id":(\d+)')


@dataclass(frozen=True, slots=True)
class _ModelText:
    """The JSON of a booster, taken apart."""

    match: re.Match[str]

    @classmethod
    def parse(cls, booster: Booster) -> _ModelText:
        match = _TREES.fullmatch(booster.save_raw("json").decode())
        if match is None:
            raise ModelError("this version of XGBoost writes models in another form than the versions that are known")
        return cls(match)

    @property
    def trees(self) -> int:
        return int(self.match["count"])

    @property
    def rounds(self) -> list[int]:
        """The number of trees before each round, and of all."""
        return _numbers(self.match["rounds"]) or [0]

    @property
    def info(self) -> list[int]:
        """The class of each tree."""
        return _numbers(self.match["info"])

    def renumbered_trees(self, first: int) -> str:
        return _TREE_NUMBER.sub(lambda number: f'"id":{int(number[1]) + first}', self.match["trees"])


def merge_boosters(boosters: Sequence[Booster]) -> Booster:
    """One booster with the trees of all of these, in their order; parameters and names are those of the last."""
    if len(boosters) == 1:
        return boosters[0]
    rounds, info, trees = [0], list[int](), list[str]()
    texts = [_ModelText.parse(booster) for booster in boosters]
    for text in texts:
        first = len(info)
        rounds += [first + before for before in text.rounds[1:]]
        info += text.info
        if text.trees:
            trees.append(text.renumbered_trees(first))
    last = texts[-1].match
    merged = "".join(
        [
            last["head"], str(len(info)), last["middle"], ",".join(map(str, rounds)), last["info_key"],
            ",".join(map(str, info)), last["trees_key"], ",".join(trees), last["tail"],
        ]
    )  # fmt: skip
    booster = Booster(model_file=bytearray(merged.encode()))
    if booster.num_boosted_rounds() != len(rounds) - 1:
        raise ModelError(f"{len(rounds) - 1} rounds became {booster.num_boosted_rounds()} when models were merged")
    return booster


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]
