"""Messages that a worker needs, built from the state, so that a reconnect can send them all again. Pure."""

from __future__ import annotations

from elasticdl.master.machine.actions import Action
from elasticdl.master.machine.membership import Worker, WorkerState
from elasticdl.master.machine.phase import StoppingPhase
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
                worker=seat.worker,
                store_address=workers[seat.worker].store_address,
                peer_address=workers[seat.worker].peer_address,
                first_logical_rank=seat.first_logical_rank,
                logical_ranks=seat.logical_ranks,
                donor=seat.donor,
                donor_address=workers[WorkerId(seat.donor)].peer_address if seat.donor else "",
            )
            for seat in planned.members
        ],
    )


def pending_messages(job: MasterState, worker: Worker, entered: int) -> list[Action]:
    """Everything the state wants this worker to know, who is in round `entered` (0: none).

    The newest result of an evaluation is told once, the rest whenever it is asked for.
    """
    ledger = job.ledger
    if job.is_over or worker.state is WorkerState.LEFT:
        return [send_message(worker.id, release=pb.Release())]
    actions: list[Action] = []
    if ledger.fleet.version:
        actions.append(send_message(worker.id, fleet=ledger.fleet.to_wire().to_proto()))
    if worker.must_reset:
        actions.append(send_message(worker.id, expelled=pb.Expelled(reason=worker.reason)))
    if worker.is_leave_requested:
        actions.append(send_message(worker.id, leave=pb.Leave(reason=worker.reason)))
    if ledger.batch_changes:
        actions.append(send_message(worker.id, batches=batch_changes.batch_scales_message(job)))
    newest = ledger.rounds.newest
    is_concerned = newest is not None and (worker.id in newest.workers or worker.id in ledger.rounds.holders)
    if newest is not None and is_concerned and entered != newest.id and worker.state is not WorkerState.FINISHED:
        actions.append(send_message(worker.id, round=round_message(job, newest)))
    is_failing = isinstance(ledger.phase, StoppingPhase) and ledger.phase.failure_exit_code > 0
    if is_failing and job.has_rounds:
        if worker.id not in ledger.rounds.holders:
            actions.append(send_message(worker.id, release=pb.Release()))
        elif ledger.export is not None and ledger.export[0] == worker.id and not ledger.is_exported:
            actions.append(send_message(worker.id, keep=pb.Keep()))
    elif isinstance(ledger.phase, StoppingPhase):
        is_holder = worker.id in ledger.rounds.holders or job.trains_by_leases
        stop = pb.StopTraining(reason=ledger.phase.reason)
        actions.append(
            send_message(worker.id, stop=stop) if is_holder else send_message(worker.id, release=pb.Release())
        )
    if ledger.export is not None and ledger.export[0] == worker.id and not ledger.is_exported:
        export = pb.Export(path=ledger.export[1], progress=training_progress.dump_progress(job), step=ledger.step)
        actions.append(send_message(worker.id, export=export))
    if ledger.initializer == worker.id and ledger.training is None:
        actions.append(send_message(worker.id, prepare=pb.Prepare()))
    if ledger.checkpoint_writer == worker.id:
        save = pb.Save(step=ledger.checkpointed_batches, progress=training_progress.dump_progress(job))
        actions.append(send_message(worker.id, save=save))
    for evaluation in ledger.evaluations.open.values():
        if evaluation.holders is not None and worker.id in evaluation.holders:
            actions.append(send_message(worker.id, evaluate=pb.EvaluationStarted(step=evaluation.step)))
    step = ledger.evaluations.newest
    if job.is_training and step is not None and step > worker.newest_result_sent:
        worker.newest_result_sent = step
        result = pb.EvaluationResult(step=step, metrics=ledger.evaluations.results[step])
        actions.append(send_message(worker.id, evaluation=result))
    return actions
