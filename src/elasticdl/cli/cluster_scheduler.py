"""`elasticdl scheduler --on kubernetes`: in a terminal, or as a Deployment whose objects `--yaml` prints."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from elasticdl.cli.place import Place, connect
from elasticdl.errors import SpecError
from elasticdl.scheduler.interface import Policy

if TYPE_CHECKING:
    from elasticdl.kube.probes import Probes
    from elasticdl.scheduler.cluster.health import Pulse


def serve(policy: Policy, place: Place, device: str | None, interval_s: float | None, port: int | None) -> None:
    """Until a signal comes. While another scheduler of the namespace leads, it waits.

    On `port`, if one is given, it says whether it is well.
    """
    from elasticdl.kube.election import LEASE_S, Election
    from elasticdl.kube.kinds import NODE
    from elasticdl.scheduler.cluster import capacity
    from elasticdl.scheduler.cluster.health import Pulse
    from elasticdl.scheduler.cluster.kubernetes import Namespace
    from elasticdl.scheduler.cluster.leading import LEASE, lead_and_serve
    from elasticdl.scheduler.cluster.serving import Server
    from elasticdl.scheduler.local.rates import warm_up

    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    warm_up()
    # A write that began when it led is over before another may lead.
    api = connect(place.context, role="scheduler", timeout_s=LEASE_S / 3)
    namespace = place.namespace or api.namespace
    device = device or capacity.shared(api.list(NODE)[0])
    election = Election(api, LEASE, namespace, f"{socket.gethostname()}-{os.getpid()}")
    cluster = (api, namespace, device, lambda: election.leads)
    click.echo(f"policy {policy.name} shares {device} among the ElasticJobs of namespace {namespace}")
    pulse = Pulse()
    with ExitStack() as stack:
        if port is not None:
            probes = _probes(port, pulse)
            stack.callback(probes.close)
            click.echo(f"it answers on port {probes.port}")
        asyncio.run(lead_and_serve(lambda: Server(policy, Namespace(*cluster), interval_s, pulse), election, pulse))
    click.echo("the scheduler ends; jobs go on with what they have")


def _probes(port: int, pulse: Pulse) -> Probes:
    from elasticdl.kube.probes import Probes

    try:
        return Probes(port, pulse.answer)
    except OSError as exc:
        raise SpecError(f"--port={port}: cannot be listened on: {exc.strerror}; give another, or 0 for any") from exc


def show(place: Place, image: str, policy: str, device: str | None, interval_s: float | None, port: int | None) -> None:
    """The objects of a scheduler in the cluster, for `kubectl apply`."""
    import yaml

    from elasticdl.scheduler.cluster import health, manifest

    namespace = place.namespace or connect(place.context).namespace
    arguments = ["--on=kubernetes", f"--namespace={namespace}", f"--policy={policy}"]
    arguments += [f"--device={device}"] if device is not None else []
    arguments += [f"--interval={interval_s:g}"] if interval_s is not None else []
    made = manifest.objects(namespace, image, arguments, health.PORT if port is None else port)
    click.echo(yaml.safe_dump_all(made, sort_keys=False, allow_unicode=True), nl=False)
