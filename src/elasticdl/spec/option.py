"""An option of the command line: its name, the place in the JobSpec it sets, and how its words are read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

TRAIN, EVALUATE, PREDICT, RUN = "train", "evaluate", "predict", "run"
MODEL_COMMANDS = (TRAIN, EVALUATE, PREDICT)
ALL = (TRAIN, EVALUATE, PREDICT, RUN)


class Form(Enum):
    """How the words after an option are read."""

    WORD = auto()  # one value; the JobSpec says whether it is a number
    OPTIONAL = auto()  # one value, or none: --queue, --queue=NAME
    SWITCH = auto()  # --shuffle / --no-shuffle
    LIST = auto()  # a,b,c
    MAPPING = auto()  # a=1;b=[1,2], repeated, or a YAML mapping
    PAIRS = auto()  # a=1,b=2: words
    VOLUMES = auto()  # claim_name=c,mount_path=/data;host_path=/h,mount_path=/m
    FILE = auto()  # a YAML file whose document is meant


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    path: str  # dotted, in the JobSpec
    section: str  # heading in --help
    help: str
    commands: tuple[str, ...] = ALL
    form: Form = Form.WORD
    metavar: str = "TEXT"
    alias: str = ""

    @property
    def flag(self) -> str:
        return f"--{self.name}"
