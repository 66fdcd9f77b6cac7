"""`elasticdl simulate` and its options, by section."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from elasticdl.cli.command import Command, JobOption, current_command_line
from elasticdl.errors import SpecError
from elasticdl.extras import check_module
from elasticdl.jobs.lookup import PLACES
from elasticdl.reporting import prepare_figures

if TYPE_CHECKING:
    from elasticdl.scheduler.snapshot import NodeInfo
    from elasticdl.sim.engine import SimulationConfig
    from elasticdl.sim.interface import ChangeCost
    from elasticdl.sim.results.outcome import SimulationOutcome


Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_PATH_TYPE = click.Path(path_type=Path)
_COUNT_TYPE = click.IntRange(min=1)

_TRACE_OPTIONS: dict[str, dict[str, Any]] = {
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
        "type": _PATH_TYPE,
        "help": "Where the applications of a Pollux workload are measured. Default: ../traces beside its directory.",
    },
    "--jobs": {"metavar": "N", "type": _COUNT_TYPE, "help": "Only the first so many."},
    "--list-policies": {"is_flag": True, "help": "Print all policies, a line each."},
}
_CLUSTER_OPTIONS: dict[str, dict[str, Any]] = {
    "--nodes": {"metavar": "N", "type": _COUNT_TYPE, "help": "Default: 16, or those of --kinds."},
    "--gpus-per-node": {
        "metavar": "N",
        "type": _COUNT_TYPE,
        "default": 4,
        "show_default": True,
        "help": "Or cores, where jobs use these.",
    },
    "--kinds": {
        "metavar": "KIND:NODES,…",
        "default": "",
        "help": "Nodes of several kinds of devices: a100:8,t4:8; a100:8x8 with so many devices each.",
    },
    "--racks": {"metavar": "N", "type": _COUNT_TYPE, "help": "Nodes are in so many racks, one after another."},
}
_COST_OPTIONS: dict[str, dict[str, Any]] = {
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
_RESULT_OPTIONS: dict[str, dict[str, Any]] = {
    "--json": {"metavar": "FILE", "type": _PATH_TYPE, "help": "All results, with the command that made them."},
    "--parquet": {"metavar": "FILE", "type": _PATH_TYPE, "help": "One row for each job and policy."},
    "--report": {"metavar": "DIR", "type": _PATH_TYPE, "help": "PNGs, and one HTML page with all of it."},
    "--processes": {
        "metavar": "N",
        "type": _COUNT_TYPE,
        "help": "So many policies at once. Default: the cores of this machine.",
    },
}
_WHAT_IF_OPTIONS: dict[str, dict[str, Any]] = {
    "--what-if": {
        "metavar": "JOB.yaml",
        "type": _PATH_TYPE,
        "help": "When would this job start on a cluster as it stands, with how many workers, and whose?",
    },
    "--snapshot": {
        "metavar": "FILE",
        "type": _PATH_TYPE,
        "help": "The cluster as it stands. Default: the jobs of this machine's scheduler.",
    },
    "--write-snapshot": {"metavar": "FILE", "type": _PATH_TYPE, "help": "Write the cluster as it stands."},
    "--on": {"type": click.Choice(PLACES), "default": None, "help": "kubernetes: the cluster of the context."},
    "--context": {"metavar": "NAME", "help": "Context of the kubeconfig. Default: the current one."},
    "--namespace -n": {"metavar": "NAME", "help": "Namespace. Default: that of the context."},
    "--device": {
        "metavar": "RESOURCE",
        "help": "On Kubernetes: what is shared. Default: what the job's workers ask for.",
    },
    "--priority": {"metavar": "N", "type": int, "help": "Of the job. Default: as its annotation says, or 0."},
}
_OPTION_SECTIONS = {
    "": _TRACE_OPTIONS,
    "Cluster": _CLUSTER_OPTIONS,
    "What befalls it": _COST_OPTIONS,
    "Results": _RESULT_OPTIONS,
    "What if": _WHAT_IF_OPTIONS,
}


def add_options(function: Decorated) -> Decorated:
    for section, options in reversed(_OPTION_SECTIONS.items()):
        for flags, attributes in reversed(options.items()):
            function = click.option(*flags.split(), cls=JobOption, section=section, **attributes)(function)
    return function


EXAMPLES = """
elasticdl simulate --list-policies
elasticdl simulate --policy fifo-gang,goodput --trace synthetic:jobs=200,per_hour=30 --report report
elasticdl simulate --policy pollux,goodput --trace workloads/workload-1.csv --nodes 16 --gpus-per-node 4
elasticdl simulate --policy gavel,sia --trace throughputs.json:jobs=500 --kinds v100:8x4,k80:8x4
elasticdl simulate --policy goodput --trace philly.csv:cluster=6c71a0 --jobs 5000 --failures MTBF=864000,repair=3600
elasticdl simulate --what-if job.yaml --snapshot cluster.json
elasticdl simulate --what-if elasticjob.yaml --on kubernetes --namespace training
"""


@click.command("simulate", cls=Command, examples=EXAMPLES)
@add_options
def command(**values: Any) -> None:
    """Run scheduling policies on a trace of jobs, on a cluster that is only computed.

    The policies are those of `elasticdl scheduler`, and so is the loop that asks them. The same command gives the same
    results. Ctrl-C ends it with what there is.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # fits are tiny: threads would only wait for each other
    if values["list_policies"]:
        _list_policies()
        return
    if values["what_if"] or values["write_snapshot"]:
        from elasticdl.cli.verbs import what_if

        what_if.answer_what_if(values)
        return
    for option in ("snapshot", "on", "context", "namespace", "device", "priority"):
        if values[option] is not None:
            raise SpecError(f"--{option}: is for --what-if and --write-snapshot")
    if not values["policy"] or not values["trace"]:
        raise SpecError("expected --policy and --trace, --what-if, or --list-policies; see `elasticdl simulate --help`")
    _simulate(values)


def _simulate(values: dict[str, Any]) -> None:
    from rich.console import Console

    from elasticdl.cli.screens import simulation_table
    from elasticdl.scheduler import policies
    from elasticdl.sim import runner
    from elasticdl.sim.traces import source

    names = parse_policy_names(values["policy"])
    for name in names:
        policies.load_policy(name)
    trace = source.open_trace(values["trace"], values["profiles"], values["jobs"] or 0)
    setting = _make_setting(values)
    _check_kinds(trace.device_kinds(), setting.nodes)
    for path in (values["json"], values["parquet"]):
        if path and not path.absolute().parent.is_dir():
            raise SpecError(f"{path}: expected a file in a directory that exists")
    if values["parquet"]:
        check_module("--parquet", "pyarrow")
    if values["report"]:
        prepare_figures("--report")
    total = sum(1 for _ in trace.jobs())  # reads all of it: what is wrong is told before anything runs
    processes = values["processes"] or os.cpu_count() or 1
    stop = _InterruptHandler()
    by_policy: dict[str, SimulationOutcome] = {}
    with stop, simulation_table.open_screen(names, total) as screen:
        for outcome in runner.simulate_all(names, trace, setting, processes, screen.show, stop.is_asked):
            by_policy[outcome.policy] = outcome
    outcomes = [by_policy[name] for name in names if name in by_policy]
    simulation_table.print_table(outcomes, Console())
    _write_results(outcomes, values, setting, total)
    if stop.is_asked():
        raise click.exceptions.Exit(130)


def _write_results(
    outcomes: list[SimulationOutcome], values: dict[str, Any], setting: SimulationConfig, total: int
) -> None:
    from elasticdl.sim.results import files

    made_by = current_command_line()
    if values["json"]:
        nodes = [
            {"name": node.name, "devices": node.devices, "kind": node.kind, "rack": node.rack} for node in setting.nodes
        ]
        files.write_json(
            values["json"], files.results_document(outcomes, made_by, {"trace": values["trace"], "nodes": nodes})
        )
    if values["parquet"]:
        files.write_parquet(values["parquet"], outcomes, made_by)
    if values["report"] and outcomes:
        from elasticdl.sim.results import html

        devices = sum(node.devices for node in setting.nodes)
        about = {
            "trace": values["trace"],
            "jobs": f"{total}",
            "cluster": f"{len(setting.nodes)} nodes, {devices} devices",
        }
        click.echo(f"report: {html.write_report(values['report'], outcomes, made_by, about)}")


def parse_policy_names(text: str) -> list[str]:
    """`a,b:x=1,y=2,c`: commas are between policies and between parameters of one."""
    names: list[str] = []
    for part in filter(None, (word.strip() for word in text.split(","))):
        if names and "=" in part and ":" not in part:
            names[-1] += f",{part}"
        else:
            names.append(part)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SpecError(f"--policy: expected each once, received {', '.join(twice)} twice")
    return names


def _make_setting(values: dict[str, Any]) -> SimulationConfig:
    from elasticdl.sim import cluster
    from elasticdl.sim.engine import SimulationConfig

    count = values["nodes"] or (0 if values["kinds"] else 16)
    nodes = cluster.parse_nodes(count, values["gpus_per_node"], values["kinds"], values["racks"] or 0)
    names = tuple(node.name for node in nodes)
    return SimulationConfig(
        nodes,
        parse_cost(values["restart_cost"], values["costs"]),
        cluster.parse_failures(values["failures"], names, values["seed"]) if values["failures"] else (),
        cluster.parse_stragglers(values["stragglers"], names),
        values["interference"],
        values["interval"] or 0.0,
        records_spans=bool(values["report"] or values["json"]),
    )


def parse_cost(alike: float | None, text: str | None) -> ChangeCost:
    from elasticdl.sim import cluster
    from elasticdl.sim.interface import ChangeCost

    if alike is not None and text:
        raise SpecError("expected --restart-cost or --costs, received both")
    if not text:
        return ChangeCost.uniform(30.0 if alike is None else alike)
    values = cluster.parse_pairs("--costs", text)
    if (
        not values
        or set(values) - {"start", "change", "join"}
        or not all(0 <= value < 1e12 for value in values.values())
    ):
        raise SpecError(f"--costs: expected start=S,change=S,join=S with seconds of 0 or more, received {text!r}")
    return ChangeCost(values.get("start", 0.0), values.get("change", 0.0), values.get("join", 0.0))


def _check_kinds(measured: list[str], nodes: tuple[NodeInfo, ...]) -> None:
    """Jobs that were measured on some kinds of devices do not run on others."""
    unknown = sorted({node.kind for node in nodes} - {"", *measured})
    if measured and unknown:
        raise SpecError(f"--kinds: the trace was measured on {', '.join(measured)}; received {', '.join(unknown)}")


def _list_policies() -> None:
    from importlib import import_module

    from elasticdl.scheduler import policies

    for name, (module, _) in sorted(policies.POLICY_REGISTRY.items()):
        docstring = import_module(f"elasticdl.scheduler.policies.{module}").__doc__ or ""
        click.echo(f"{name:20}{docstring.strip().splitlines()[0]}")


class _InterruptHandler:
    """The first Ctrl-C asks for an end, the second is one."""

    def __init__(self) -> None:
        self._asked = False
        self._before: Any = None

    def is_asked(self) -> bool:
        return self._asked

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGINT, self._ask)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _ask(self, *_: object) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
