"""Replicas that run out of memory: pods are restarted with more, up to a limit; the user is told what to do. Pure."""

from __future__ import annotations

from elasticdl.launcher.kubernetes.resources import memory_limit
from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.membership import OUT_OF_MEMORY, ExitCause
from elasticdl.master.machine.state import MasterState


def memory_advice(job: MasterState, role: str = "worker") -> str:
    """Tells the user what to do about too little memory."""
    if job.spec.cluster is not None:
        return f"give it more with --{role}_resource_request=memory=… or --max_memory"
    if role == "ps":
        return "use more ps on other machines, or a machine with more memory"
    return "use a smaller --minibatch_size, fewer --num_workers, or a machine with more memory"


def assess_out_of_memory(
    job: MasterState, role: str, raises: int, cause_name: str, cause: ExitCause, now: float
) -> tuple[ExitCause, list[Action]]:
    """The cause and log entries of an exit. Running out of memory is no crash while pods can be given more.

    `raises`: how often the memory of its role had been raised when this pod was launched.
    """
    if cause_name != OUT_OF_MEMORY:
        return cause, []
    if job.spec.cluster is None:
        return cause._replace(reason=f"{cause.reason}: the kernel killed it; {memory_advice(job, role)}"), []
    had, raised = memory_limit(job.spec, role, raises), job.ledger.memory_raises.get(role, 0)
    if raises < raised:  # another pod of its role ran out before: the next one gets more anyway
        return cause._replace(reason=f"{cause.reason} (had {had})", is_crash=False), []
    more = memory_limit(job.spec, role, raises + 1)
    if more == had:
        reason = f"{cause.reason} (had {had}, the maximum; raise --{role}_resource_request or --max_memory)"
        return cause._replace(reason=reason), []
    job.ledger.memory_raises[role] = raises + 1
    log_entry = job.add_log_entry(
        now, "memory-raised", reason=f"{role} pods get {more} from now on, {had} was not enough"
    )
    return cause._replace(reason=f"{cause.reason} (had {had})", is_crash=False), [log_entry]
