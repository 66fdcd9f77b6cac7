"""`elasticdl scheduler --on kubernetes`: in a terminal, or as a Deployment whose objects `--yaml` prints."""

from __future__ import annotations

import asyncio
import logging
import os
import socket

import click

from elasticdl.cli.place import Place, connect
from elasticdl.scheduler.interface import Policy


def serve(policy: Policy, place: Place, device: str | None, interval_s: float | None) -> None:
    """Until a signal comes. While another scheduler of the namespace leads, it waits."""
    from elasticdl.kube.election import LEASE_S, Election
    from elasticdl.kube.kinds import NODE
    from elasticdl.scheduler.cluster import capacity
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
    asyncio.run(lead_and_serve(lambda: Server(policy, Namespace(*cluster), interval_s), election))
    click.echo("the scheduler ends; jobs go on with what they have")


def show(place: Place, image: str, policy: str, device: str | None, interval_s: float | None) -> None:
    """The objects of a scheduler in the cluster, for `kubectl apply`."""
    import yaml

    from elasticdl.scheduler.cluster import manifest

    namespace = place.namespace or connect(place.context).namespace
    arguments = ["--on=kubernetes", f"--namespace={namespace}", f"--policy={policy}"]
    arguments += [f"--device={device}"] if device is not None else []
    arguments += [f"--interval={interval_s:g}"] if interval_s is not None else []
    made = manifest.objects(namespace, image, arguments)
    click.echo(yaml.safe_dump_all(made, sort_keys=False, allow_unicode=True), nl=False)
