"""An option of the command line and how its text is parsed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

TRAIN, EVALUATE, PREDICT, RUN = "train", "evaluate", "predict", "run"
MODEL_COMMANDS = (TRAIN, EVALUATE, PREDICT)
ALL_COMMANDS = (TRAIN, EVALUATE, PREDICT, RUN)


class OptionSyntax(Enum):
    """How the text after an option is parsed."""

    WORD = auto()  # one value; the JobSpec says whether it is a number
    OPTIONAL = auto()  # one value, or none: --queue, --queue=NAME
    SWITCH = auto()  # --shuffle / --no-shuffle
    LIST = auto()  # a,b,c
    MAPPING = auto()  # a=1;b=[1,2], repeated, or a YAML mapping
    PAIRS = auto()  # a=1,b=2: words
    VOLUMES = auto()  # claim_name=c,mount_path=/data;host_path=/h,mount_path=/m
    FILE = auto()  # a YAML file whose content is the value


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    path: str  # dotted, in the JobSpec
    section: str  # heading in --help
    help: str
    commands: tuple[str, ...] = ALL_COMMANDS
    syntax: OptionSyntax = OptionSyntax.WORD
    metavar: str = "TEXT"
    alias: str = ""

    @property
    def flag(self) -> str:
        return f"--{self.name}"
