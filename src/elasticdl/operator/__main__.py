"""`python -m elasticdl.operator`: waits until it is the leader, then reconciles ElasticJobs until a signal comes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any, cast

import click
import kopf

from elasticdl.errors import ElasticDLError
from elasticdl.kube.api import Api
from elasticdl.kube.election import LEASE_S, Election
from elasticdl.operator import handlers, health

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def lead_and_serve(
    api: Api, election: Election, health_server: health.HealthServer, namespaces: Sequence[str] = ()
) -> None:
    """Serves whenever this operator is the leader, until a signal comes."""
    loop = asyncio.get_running_loop()
    heartbeat = loop.create_task(health_server.heartbeat.run())
    is_lost = True
    while is_lost:
        waiting = loop.create_task(election.wait_until_leader())
        for stop_signal in STOP_SIGNALS:
            loop.add_signal_handler(stop_signal, waiting.cancel)
        try:
            await waiting
        except asyncio.CancelledError:
            break
        health.IS_LEADER.set(1)
        is_lost = await serve(api, election, namespaces)
        health.IS_LEADER.set(0)
    heartbeat.cancel()


async def serve(api: Api, election: Election, namespaces: Sequence[str] = ()) -> bool:
    """Reconciles until the Lease is lost (returns True) or a signal comes (False).

    `namespaces`: those whose ElasticJobs are watched; none means the whole cluster.
    """
    loop = asyncio.get_running_loop()
    is_over = asyncio.Event()
    leading = loop.create_task(election.wait_until_lost())
    leading.add_done_callback(lambda _: is_over.set())
    other_tasks = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=handlers.Handlers(api).kopf_registry(),
        settings=handlers.kopf_settings(),
        clusterwide=not namespaces,
        namespaces=namespaces,
        standalone=True,
        identity=cast(Any, election.identity),  # otherwise kopf looks up the user's name, and users of pods have none
        stop_flag=is_over,
    )
    for stop_signal in STOP_SIGNALS:  # replaces kopf's own handlers, which do not set our flag
        loop.add_signal_handler(stop_signal, is_over.set)
    await kopf.run_tasks(tasks, ignored=other_tasks)
    if leading.done():
        return True
    leading.cancel()
    await election.release()
    return False


@click.command()
@click.option("--port", default=8080, show_default=True, help="Port of /healthz and /metrics; 0: any free port.")
@click.option(
    "--lease", "lease_name", default="elasticdl-operator", show_default=True, help="Lease for leader election."
)
@click.option("--namespace", default="", help="Namespace of the Lease. Default: that of the pod, or of the context.")
@click.option(
    "--watch",
    "namespaces",
    multiple=True,
    metavar="NAMESPACE",
    help="Watch the ElasticJobs of this namespace only; may be repeated. Default: the whole cluster.",
)
@click.option(
    "--lease-seconds",
    default=LEASE_S,
    show_default=True,
    help="Another operator takes over if the leader has not renewed the Lease for this long.",
)
@click.option("--log-level", default="INFO", show_default=True, help="DEBUG, INFO, WARNING or ERROR.")
def main(
    port: int, lease_name: str, namespace: str, namespaces: tuple[str, ...], lease_seconds: float, log_level: str
) -> None:
    """Run the jobs that the ElasticJobs of a cluster, or of some of its namespaces, describe."""
    logging.basicConfig(level=log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    if log_level != "DEBUG":  # kopf logs every event that it handles, and each master causes one a second
        logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    try:
        api = Api.connect(role="operator", timeout_s=lease_seconds / 3)
    except ElasticDLError as exc:
        click.echo(str(exc), err=True)
        sys.exit(exc.exit_code)
    identity = f"{socket.gethostname()}-{os.getpid()}"
    election = Election(api, lease_name, namespace or api.namespace, identity, lease_s=lease_seconds)
    with health.HealthServer(port) as health_server:
        logging.getLogger(__name__).info("%s answers probes on port %d", identity, health_server.port)
        asyncio.run(lead_and_serve(api, election, health_server, namespaces))


if __name__ == "__main__":
    main()
