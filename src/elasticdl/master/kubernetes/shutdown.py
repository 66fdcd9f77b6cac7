"""A master whose pod is taken away: its journal has all there is to know, so it just goes, and the next one goes on.

Unless its job was deleted or suspended: then there is no next one. Workers and ps, who would wait for it for as long
as their grace period allows, are released first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from elasticdl.errors import AccessDenied, ElasticDLError
from elasticdl.kube.api import Api
from elasticdl.kube.kinds import STATEFUL_SET
from elasticdl.launcher.kubernetes.manifest import Owner
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import PsId

if TYPE_CHECKING:
    from elasticdl.master.runtime.loop import MasterLoop

IS_LAST_TIMEOUT_S = 3.0  # for the API server to say whether it is the last
RELEASE_TIMEOUT_S = 5.0  # for those that were released to say goodbye
_POLL_S = 0.05
_log = logging.getLogger(__name__)


def is_last_master(api: Api, master: Owner, namespace: str) -> bool:
    """Whether no other will follow: the job is gone, or going, or shall have no pods. Not where nobody can say."""
    try:
        master_set = api.get(STATEFUL_SET, master.name, namespace)
    except AccessDenied:
        return True  # its rights belonged to the job, and went before it
    except ElasticDLError:
        return False
    if master_set is None:
        return True
    metadata = master_set["metadata"]
    is_going = metadata["uid"] != master.uid or "deletionTimestamp" in metadata
    return is_going or not master_set["spec"]["replicas"]


async def release_replicas(
    loop: MasterLoop, is_last: Callable[[], bool], ask_s: float = IS_LAST_TIMEOUT_S, going_s: float = RELEASE_TIMEOUT_S
) -> None:
    """All that is to be done before it ends."""
    with suppress(TimeoutError):
        async with asyncio.timeout(ask_s):
            if not await asyncio.to_thread(is_last):
                return
        _log.info("no other master will follow: %d workers and ps are released", len(loop.streams))
        loop.executor.detach_launcher()
        async with asyncio.timeout(going_s):
            # Workers first: one that waits for an answer of a ps hears nothing else meanwhile.
            fleet = loop.machine.state.ledger.fleet.ps
            for is_ps in (False, True):
                going = [name for name in loop.streams if (PsId(name) in fleet) is is_ps]
                for name in going:
                    loop.streams[name].send(pb.MasterMessage(release=pb.Release()))
                while loop.streams.keys() & going:
                    await asyncio.sleep(_POLL_S)
