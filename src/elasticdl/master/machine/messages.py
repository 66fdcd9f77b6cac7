"""Builds the messages that a worker needs from the state, so that they can be sent again after a reconnect. Pure."""

from __future__ import annotations

from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.membership import Worker, WorkerState
from elasticdl.master.machine.state import MasterState, send_message
from elasticdl.master.strategies import batch_changes, training_progress
from elasticdl.master.strategies.rounds import Round
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import WorkerId


def round_message(job: MasterState, planned: Round) -> pb.Round:
    workers = job.ledger.membership.workers
    return pb.Round(
        id=planned.id,
        forced=planned.is_forced,
        members=[
            pb.Member(
                worker=member.worker,
                store_address=workers[member.worker].store_address,
                peer_address=workers[member.worker].peer_address,
                first_logical_rank=member.first_logical_rank,
                logical_ranks=member.logical_ranks,
                donor=member.donor,
                donor_address=workers[WorkerId(member.donor)].peer_address if member.donor else "",
            )
            for member in planned.members
        ],
    )


def pending_messages(job: MasterState, worker: Worker, entered: int) -> list[Action]:
    """All messages that a worker in round `entered` (0: none) needs now.

    The newest result of an evaluation is included once, everything else every time.
    """
    ledger = job.ledger
    if job.is_over or worker.state is WorkerState.LEFT:
        return [send_message(worker.id, release=pb.Release())]
    actions: list[Action] = []
    if ledger.fleet.version:
        actions.append(send_message(worker.id, fleet=ledger.fleet.to_wire().to_proto()))
    if worker.must_reset:
        actions.append(send_message(worker.id, reset=pb.Reset(reason=worker.reason)))
    if worker.is_leave_requested:
        actions.append(send_message(worker.id, leave=pb.Leave(reason=worker.reason)))
    if ledger.batch_changes:
        actions.append(send_message(worker.id, batches=batch_changes.batch_scales_message(job)))
    actions += job.strategy.pending_messages(job, worker, entered)
    for evaluation in ledger.evaluations.open.values():
        if evaluation.holders is not None and worker.id in evaluation.holders:
            actions.append(send_message(worker.id, evaluate=pb.EvaluationStarted(step=evaluation.step)))
    step = ledger.evaluations.newest
    if step is not None and step > worker.newest_result_sent:
        actions += job.strategy.pending_result(worker, step, ledger.evaluations.results[step])
    return actions


def is_export_pending(job: MasterState, worker: WorkerId) -> bool:
    """Whether this worker was asked to write the last checkpoint and has not done so yet."""
    ledger = job.ledger
    return ledger.export is not None and ledger.export[0] == worker and not ledger.is_exported


def pending_export(job: MasterState, worker: WorkerId) -> list[Action]:
    if job.ledger.export is None or not is_export_pending(job, worker):
        return []
    return [send_message(worker, export=training_progress.export_message(job, job.ledger.export[1]))]
