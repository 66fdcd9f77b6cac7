"""The end of a master whose pod is deleted.

Usually it just ends, and the next master continues from its journal. If the job was deleted or suspended there is no
next master: this one releases workers and ps first, which would otherwise wait for it for their grace period.
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

IS_LAST_TIMEOUT_S = 3.0  # of the API server, to tell whether this is the last master
RELEASE_TIMEOUT_S = 5.0  # of released replicas, to end their sessions
_POLL_S = 0.05
_log = logging.getLogger(__name__)


def is_last_master(api: Api, master: Owner, namespace: str) -> bool:
    """Whether no other master follows: the job is deleted or has no pods. False if the API server does not answer."""
    try:
        master_set = api.get(STATEFUL_SET, master.name, namespace)
    except AccessDenied:
        return True  # its rights belonged to the job and were deleted with it
    except ElasticDLError:
        return False
    if master_set is None:
        return True
    metadata = master_set["metadata"]
    is_deleted = metadata["uid"] != master.uid or "deletionTimestamp" in metadata
    return is_deleted or not master_set["spec"]["replicas"]


async def release_replicas(
    loop: MasterLoop,
    is_last: Callable[[], bool],
    is_last_timeout_s: float = IS_LAST_TIMEOUT_S,
    release_timeout_s: float = RELEASE_TIMEOUT_S,
) -> None:
    """Releases all workers and ps if this is the last master."""
    with suppress(TimeoutError):
        async with asyncio.timeout(is_last_timeout_s):
            if not await asyncio.to_thread(is_last):
                return
        _log.info("no other master follows: releasing %d workers and ps", len(loop.streams))
        loop.executor.detach_launcher()
        async with asyncio.timeout(release_timeout_s):
            # Workers first: a worker that waits for a ps handles no messages.
            fleet = loop.machine.state.ledger.fleet.ps
            for is_ps in (False, True):
                replicas = [replica for replica in loop.streams if (PsId(replica) in fleet) is is_ps]
                for replica in replicas:
                    loop.streams[replica].send(pb.MasterMessage(release=pb.Release()))
                while loop.streams.keys() & replicas:
                    await asyncio.sleep(_POLL_S)
