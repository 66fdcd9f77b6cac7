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
        "help": "Policies, separated by commas, with their parameters: tiresias:threshold_s=3600.",
    },
    "--trace": {
        "metavar": "TRACE",
        "help": "A file of a known format, or synthetic:jobs=100,per_hour=12,seed=0.",
    },
    "--profiles": {
        "metavar": "DIR",
        "type": _PATH_TYPE,
        "help": "Measurements of the applications of a Pollux workload. Default: ../traces beside its directory.",
    },
    "--jobs": {"metavar": "N", "type": _COUNT_TYPE, "help": "Use only the first N jobs of the trace."},
    "--list-policies": {"is_flag": True, "help": "Print all policies, a line each."},
}
_CLUSTER_OPTIONS: dict[str, dict[str, Any]] = {
    "--nodes": {"metavar": "N", "type": _COUNT_TYPE, "help": "Number of nodes. Default: 16, or those of --kinds."},
    "--gpus-per-node": {
        "metavar": "N",
        "type": _COUNT_TYPE,
        "default": 4,
        "show_default": True,
        "help": "Devices of each node; cores, if jobs use these.",
    },
    "--kinds": {
        "metavar": "KIND:NODES,…",
        "default": "",
        "help": "Nodes with several kinds of devices: a100:8,t4:8; a100:8x4 are 8 nodes with 4 devices each.",
    },
    "--racks": {
        "metavar": "N",
        "type": _COUNT_TYPE,
        "help": "Number of racks that the nodes are in, one after another.",
    },
}
_COST_OPTIONS: dict[str, dict[str, Any]] = {
    "--interval": {
        "metavar": "SECONDS",
        "type": click.FloatRange(min=0, min_open=True),
        "help": "Time between two decisions if nothing happens. Default: chosen by each policy.",
    },
    "--restart-cost": {
        "metavar": "SECONDS",
        "type": click.FloatRange(min=0),
        "help": "Seconds that a start, or any change of its workers, costs a job. Default: 30.",
    },
    "--costs": {
        "metavar": "start=S,change=S,join=S",
        "help": "Instead: seconds of a start, of a change for all workers, and until newcomers join the others.",
    },
    "--interference": {
        "metavar": "SHARE",
        "type": click.FloatRange(0, 1, max_open=True),
        "default": 0.0,
        "help": "Share by which jobs on several nodes are slower if they share a node.",
    },
    "--stragglers": {"metavar": "NODE=FACTOR,…", "default": "", "help": "Slow nodes: 2.0 takes twice as long."},
    "--failures": {"metavar": "MTBF=S,repair=S", "default": "", "help": "Each node fails at random and comes back."},
    "--seed": {
        "metavar": "N",
        "type": click.IntRange(min=0),
        "default": 0,
        "show_default": True,
        "help": "Seed of the failures. A synthetic trace has its own.",
    },
}
_RESULT_OPTIONS: dict[str, dict[str, Any]] = {
    "--json": {"metavar": "FILE", "type": _PATH_TYPE, "help": "Write all results, with the command that made them."},
    "--parquet": {"metavar": "FILE", "type": _PATH_TYPE, "help": "Write one row for each job and policy."},
    "--report": {"metavar": "DIR", "type": _PATH_TYPE, "help": "Write PNGs, and one HTML page with everything."},
    "--processes": {
        "metavar": "N",
        "type": _COUNT_TYPE,
        "help": "Number of policies to simulate at once. Default: the cores of this machine.",
    },
}
_WHAT_IF_OPTIONS: dict[str, dict[str, Any]] = {
    "--what-if": {
        "metavar": "JOB.yaml",
        "type": _PATH_TYPE,
        "help": "Forecast when this job would start on the current cluster, with how many workers, taken from whom.",
    },
    "--snapshot": {
        "metavar": "FILE",
        "type": _PATH_TYPE,
        "help": "A file with the cluster. Default: the jobs of this machine's scheduler.",
    },
    "--write-snapshot": {"metavar": "FILE", "type": _PATH_TYPE, "help": "Write the current cluster to this file."},
    "--on": {"type": click.Choice(PLACES), "default": None, "help": "kubernetes: the cluster of the context."},
    "--context": {"metavar": "NAME", "help": "Context of the kubeconfig. Default: the current one."},
    "--namespace -n": {"metavar": "NAME", "help": "Namespace. Default: that of the context."},
    "--device": {
        "metavar": "RESOURCE",
        "help": "On Kubernetes: the resource that is shared. Default: what the job's workers request.",
    },
    "--priority": {"metavar": "N", "type": int, "help": "Priority of the job. Default: that of its annotation, or 0."},
}
_OPTION_SECTIONS = {
    "": _TRACE_OPTIONS,
    "Cluster": _CLUSTER_OPTIONS,
    "Costs and failures": _COST_OPTIONS,
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
    """Run scheduling policies on a trace of jobs, on a simulated cluster.

    The policies and the loop are those of `elasticdl scheduler`. The same command gives the same results. Ctrl-C ends
    the simulation and prints the results so far.
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
    total = sum(1 for _ in trace.jobs())  # reads all of it: errors in it are reported before anything runs
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
    """The first Ctrl-C ends the simulation with its results, the second ends it at once."""

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
