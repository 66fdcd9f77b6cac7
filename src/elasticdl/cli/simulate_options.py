"""The options of `elasticdl simulate`, by section."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from elasticdl.cli.command import JobOption
from elasticdl.cli.place import PLACES

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_FILE = click.Path(path_type=Path)
_COUNT = click.IntRange(min=1)

_WHAT: dict[str, dict[str, Any]] = {
    "--policy": {
        "metavar": "NAMES",
        "help": "One or several, with commas; each with its parameters: tiresias:threshold_s=3600.",
    },
    "--trace": {
        "metavar": "TRACE",
        "help": "A file of a known format, or synthetic:jobs=100,per_hour=12,seed=0.",
    },
    "--profiles": {
        "metavar": "DIR",
        "type": _FILE,
        "help": "Where the applications of a Pollux workload are measured. Default: ../traces beside its directory.",
    },
    "--jobs": {"metavar": "N", "type": _COUNT, "help": "Only the first so many."},
    "--list-policies": {"is_flag": True, "help": "Print all policies, a line each."},
}
_CLUSTER: dict[str, dict[str, Any]] = {
    "--nodes": {"metavar": "N", "type": _COUNT, "help": "Default: 16, or those of --kinds."},
    "--gpus-per-node": {
        "metavar": "N",
        "type": _COUNT,
        "default": 4,
        "show_default": True,
        "help": "Or cores, where jobs use these.",
    },
    "--kinds": {
        "metavar": "KIND:NODES,…",
        "default": "",
        "help": "Nodes of several kinds of devices: a100:8,t4:8; a100:8x8 with so many devices each.",
    },
    "--racks": {"metavar": "N", "type": _COUNT, "help": "Nodes are in so many racks, one after another."},
}
_EVENTS: dict[str, dict[str, Any]] = {
    "--interval": {
        "metavar": "SECONDS",
        "type": click.FloatRange(min=0, min_open=True),
        "help": "Decide so often though nothing happened. Default: as each policy likes.",
    },
    "--restart-cost": {
        "metavar": "SECONDS",
        "type": click.FloatRange(min=0),
        "help": "What a start and any change of its workers costs a job. Default: 30.",
    },
    "--costs": {
        "metavar": "start=S,change=S,join=S",
        "help": "Instead: a start, a change for all workers, and until newcomers join while the others go on.",
    },
    "--interference": {
        "metavar": "SHARE",
        "type": click.FloatRange(0, 1, max_open=True),
        "default": 0.0,
        "help": "Jobs on several nodes that share one are slower by this share.",
    },
    "--stragglers": {"metavar": "NODE=FACTOR,…", "default": "", "help": "Slow nodes: 2.0 takes twice as long."},
    "--failures": {"metavar": "MTBF=S,repair=S", "default": "", "help": "Each node fails at random and comes back."},
    "--seed": {
        "metavar": "N",
        "type": click.IntRange(min=0),
        "default": 0,
        "show_default": True,
        "help": "Of failures. A made-up trace has its own.",
    },
}
_RESULTS: dict[str, dict[str, Any]] = {
    "--json": {"metavar": "FILE", "type": _FILE, "help": "All results, with the command that made them."},
    "--parquet": {"metavar": "FILE", "type": _FILE, "help": "One row for each job and policy."},
    "--report": {"metavar": "DIR", "type": _FILE, "help": "PNGs, and one HTML page with all of it."},
    "--processes": {
        "metavar": "N",
        "type": _COUNT,
        "help": "So many policies at once. Default: the cores of this machine.",
    },
}
_WHAT_IF: dict[str, dict[str, Any]] = {
    "--what-if": {
        "metavar": "JOB.yaml",
        "type": _FILE,
        "help": "When would this job start on a cluster as it stands, with how many workers, and whose?",
    },
    "--snapshot": {
        "metavar": "FILE",
        "type": _FILE,
        "help": "The cluster as it stands. Default: the jobs of this machine's scheduler.",
    },
    "--write-snapshot": {"metavar": "FILE", "type": _FILE, "help": "Write the cluster as it stands."},
    "--on": {"type": click.Choice(PLACES), "default": None, "help": "kubernetes: the cluster of the context."},
    "--context": {"metavar": "NAME", "help": "Context of the kubeconfig. Default: the current one."},
    "--namespace -n": {"metavar": "NAME", "help": "Namespace. Default: that of the context."},
    "--device": {
        "metavar": "RESOURCE",
        "help": "On Kubernetes: what is shared. Default: what the job's workers ask for.",
    },
    "--priority": {"metavar": "N", "type": int, "help": "Of the job. Default: as its annotation says, or 0."},
}
_SECTIONS = {
    "": _WHAT,
    "Cluster": _CLUSTER,
    "What befalls it": _EVENTS,
    "Results": _RESULTS,
    "What if": _WHAT_IF,
}


def all_of_them(function: Decorated) -> Decorated:
    for section, options in reversed(_SECTIONS.items()):
        for flags, attributes in reversed(options.items()):
            function = click.option(*flags.split(), cls=JobOption, section=section, **attributes)(function)
    return function
