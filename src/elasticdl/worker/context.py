"""What a worker has before it has a model, and the parts of an elastic training, put together around a model."""

from __future__ import annotations

import hashlib
import logging
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from elasticdl import watchdog
from elasticdl.checkpoint import store
from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.collective.gradients import GradientBuffers
from elasticdl.collective.group import Group, NcclGroup
from elasticdl.collective.mesh import EarlyConnections, RoundMember, connect_mesh
from elasticdl.collective.peers import ConnectionPurpose, PeerListener
from elasticdl.collective.squared_norms import SquaredNorms
from elasticdl.collective.tree import ReductionTree
from elasticdl.data import availability
from elasticdl.data.dataset import Dataset
from elasticdl.data.plan import TrainingPlan
from elasticdl.errors import SpecError
from elasticdl.faults import Faults
from elasticdl.model.callbacks import BestMetric, Callback
from elasticdl.spec import BatchRule, JobSpec, is_loopback
from elasticdl.spec.env import WorkerEnv
from elasticdl.storage.paths import AnyPath, parse_path
from elasticdl.worker.embeddings.tables import EmbeddingTables
from elasticdl.worker.evaluator import Evaluator
from elasticdl.worker.master_connection import MasterConnection
from elasticdl.worker.reading.feed import Feed, open_feed
from elasticdl.worker.rounds.donor import StateDonor
from elasticdl.worker.rounds.engine import ElasticEngine
from elasticdl.worker.rounds.membership import EnteredRound, RoundMembership
from elasticdl.worker.rounds.step_report import StepReportLayout
from elasticdl.worker.saver import CheckpointSaver
from elasticdl.worker.training.adaptive_batch import AdaptiveBatch
from elasticdl.worker.training.consistency import ConsistencyGuard
from elasticdl.worker.training.loss_history import LossHistory
from elasticdl.worker.training.state import TrainingState
from elasticdl.worker.training.user_state import UserState

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerContext:
    """What a worker has before it has a model: its line to the master and its peers."""

    env: WorkerEnv
    spec: JobSpec
    master: MasterConnection
    rounds: RoundMembership
    donor: StateDonor
    door: PeerListener
    early_connections: EarlyConnections

    @classmethod
    def open(cls, env: WorkerEnv, spec: JobSpec) -> WorkerContext:
        """Say Hello to the master, and listen for peers."""
        device, timeout_s = choose_device(spec, env), spec.timing.build_s
        arrivals, donor = EarlyConnections(timeout_s), StateDonor(spec.timing.handover_s)

        def build(round_id: int, rank: int, peers: Sequence[RoundMember]) -> Group:
            mesh = connect_mesh(round_id, rank, peers, link.credentials, arrivals, timeout_s)
            if uses_nccl(device, spec, env.address):
                return NcclGroup(mesh, rank, len(peers), env.address, timeout_s)
            return Group(mesh, rank, len(peers))

        rounds = RoundMembership(env.worker, build)
        link = MasterConnection(env, spec, rounds, cpu_capability=torch.backends.cpu.get_cpu_capability())
        handlers = {
            ConnectionPurpose.STATE: lambda greeting, connection: donor.start_transfer(greeting.worker, connection),
            ConnectionPurpose.ROUND: arrivals.add,
        }
        door = PeerListener(env.address, link.credentials, handlers)
        availability.set_wait_listener(
            lambda is_waiting, why: link.report_notice("data-waits" if is_waiting else "data-returned", why)
        )
        link.open(door.address)
        return cls(env, spec, link, rounds, donor, door, arrivals)

    def close(self, reason: str) -> None:
        self.donor.close(self.spec.timing.build_s)
        self.door.close()
        self.early_connections.close()
        self.rounds.close()
        self.master.close(reason)


@dataclass(frozen=True)
class ElasticTraining:
    engine: ElasticEngine
    saver: CheckpointSaver
    feed: Feed


def assemble_training(
    line: WorkerContext,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    dataset: Dataset | Feed,
    plan: TrainingPlan,
    *,
    user_state: UserState | None = None,
    callbacks: Sequence[Callback] = (),
    learning_rate: Callable[[int], float | None] = lambda step: None,
    evaluator: Evaluator | None = None,
    tables: EmbeddingTables,
    device: torch.device,
    files: Mapping[str, bytes] = MappingProxyType({}),
) -> ElasticTraining:
    spec = line.spec
    ordered = spec.plan.reproducible
    tree = ReductionTree(plan.logical_ranks)
    trained = sum(parameter.requires_grad for parameter in model.parameters())
    squares, tail, run = SquaredNorms(), StepReportLayout(plan.logical_ranks, trained).length, checkpoint_run_id(line)
    gradients = GradientBuffers(
        model.parameters(), tree, tail, ordered=ordered, squares=squares, warns=user_state is not None
    )
    batch = make_adaptive_batch(spec, plan, optimizers, run)
    training = TrainingState(model, optimizers, gradients, callbacks, learning_rate, batch, user_state, plan.seed)
    training.losses = LossHistory(plan.steps_per_epoch, spec.observability.loss_interval(plan.total_steps))
    line.master.losses = training.losses
    feed = open_feed(dataset, plan, device)
    directory = line.master.directory.checkpoints(spec)
    saver = CheckpointSaver(
        training,
        tables.begin_snapshot,
        line.master,
        directory,
        spec.checkpoint.keep,
        checkpoint_metadata(spec, plan, run),
        one_at_a_time=tables.has_rows,
        retry_s=spec.checkpoint.retry_s,
        rescue=rescue_directories(line),
        is_on=spec.has_durable_checkpoints,
        files=files,
    )

    def after_step(seat: EnteredRound) -> None:
        if (
            is_checkpoint_due(spec, training.step, training.update_start_step)
            and seat.rank == 0
            and training.step < plan.total_steps
        ):
            saver.save()
        if evaluator is not None:
            evaluator.after_step(training, plan)
        while line.master.evaluation_results:
            training.notify_evaluation(*line.master.evaluation_results.popleft())

    engine = ElasticEngine(
        training,
        feed,
        line.rounds,
        line.master,
        line.donor,
        tables,
        first_state=lambda: initialize_state(training, tables, spec, directory, run),
        after_step=after_step,
        ordered=ordered,
        faults=Faults.parse(line.env.faults, line.env.worker),
        squares=squares,
        guard=ConsistencyGuard(spec.plan.guard_steps),
        is_saved=lambda step, before: is_checkpoint_due(spec, step, before),
    )
    watching = next((callback for callback in callbacks if isinstance(callback, BestMetric)), None)
    line.master.report_plan(
        plan.total_steps,
        plan.total_records,
        plan.records_per_epoch,
        plan.steps_per_epoch,
        evaluator.records if evaluator else 0,
        watching.metric if watching else "",
        best_is_least=watching is not None and watching.mode == "min",
        global_batch=plan.global_batch,
    )
    return ElasticTraining(engine, saver, feed)


def make_adaptive_batch(
    spec: JobSpec, plan: TrainingPlan, optimizers: Sequence[torch.optim.Optimizer], run: str
) -> AdaptiveBatch:
    rule = spec.plan.batch_rule
    if rule is not BatchRule.NONE and len(optimizers) > 1:
        raise SpecError(f"plan.batch_rule: {rule} scales one optimizer, the script has {len(optimizers)}")
    if rule is not BatchRule.NONE and hasattr(optimizers[0], "keras"):
        raise SpecError(
            f"plan.batch_rule: {rule} scales the learning rate of an optimizer of torch; "
            "the model is one of Keras: leave out --adaptive_batch"
        )
    return AdaptiveBatch(rule, plan.global_batch, spec.plan.batch_schedule, run)


def is_checkpoint_due(spec: JobSpec, step: int, before: int | None = None) -> bool:
    """Whether a checkpoint is to be written after so many steps, where the update before ended with `before`."""
    every = spec.checkpoint.steps
    return bool(every) and step // every > (step - 1 if before is None else before) // every


def initialize_state(
    training: TrainingState, tables: EmbeddingTables, spec: JobSpec, directory: AnyPath, run: str
) -> None:
    """The state where no worker holds one: our newest checkpoint, or the one to start from, or a new model."""
    with watchdog.pause_watchdog("makes the first state, or loads it"):
        image = load_initial_image(spec, directory, run)
        if image is None:
            tables.put_initial_rows()
            training.begin()
        else:
            training.load(image)


def load_initial_image(spec: JobSpec, directory: AnyPath, run: str) -> CapturedState | None:
    """Our newest checkpoint, or the one to start from; None where the job begins anew."""
    found = store.read_newest(directory)
    if found is not None and (spec.checkpoint.resume or found[1].get("run") == run):
        image, extra, path = found
    elif spec.checkpoint.initial:
        image, extra, path = store.find_checkpoint(parse_path(spec.checkpoint.initial, spec.timing.store_s))
    else:
        return None
    _log.info("state of step %d from %s", image.step, path)
    _warn_of_changed_numerics(extra, spec)
    return image


def rescue_directories(line: WorkerContext) -> tuple[Path, ...]:
    """Where the last state is kept when its checkpoint cannot be written; in a pod nothing would outlive it."""
    if line.spec.cluster is not None:
        return ()
    return (line.master.directory.root / "rescued", Path(tempfile.gettempdir()) / f"elasticdl-{line.spec.name}-rescued")


def checkpoint_run_id(line: WorkerContext) -> str:
    """What checkpoints of this run are known by."""
    return hashlib.sha256(line.master.token.encode()).hexdigest()[:16]


def checkpoint_metadata(spec: JobSpec, plan: TrainingPlan, run: str) -> dict[str, Any]:
    """What a checkpoint tells of the job: all that the bits of its future depend on."""
    return {
        "job": spec.name,
        "run": run,
        "seed": plan.seed,
        "records_per_epoch": plan.records_per_epoch,
        "global_batch_size": plan.global_batch,
        "logical_ranks": plan.logical_ranks,
        "reproducible": spec.plan.reproducible,
        "precision": spec.plan.precision,
        "micro_batch_size": spec.plan.micro_batch_size,
        "threads": spec.workers.threads,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "tensorflow": _tensorflow_version(),
        "model_def": spec.model.definition if spec.model else "",
        "model_params": spec.model.params if spec.model else {},
    }


def _warn_of_changed_numerics(extra: dict[str, Any], spec: JobSpec) -> None:
    now = {
        "seed": spec.plan.seed,
        "logical_ranks": spec.plan.logical_ranks,
        "precision": spec.plan.precision,
        "micro_batch_size": spec.plan.micro_batch_size,
        "threads": spec.workers.threads,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "tensorflow": _tensorflow_version(),
    }
    for name, value in now.items():
        if extra.get(name, value) != value:
            _log.warning(
                "the checkpoint was made with %s %s, now it is %s: the bits will differ", name, extra[name], value
            )


def _tensorflow_version() -> str:
    """Of the one this worker has loaded; empty in a job of torch alone."""
    return str(getattr(sys.modules.get("tensorflow"), "__version__", ""))


def choose_device(spec: JobSpec, env: WorkerEnv) -> torch.device:
    wanted = spec.workers.device
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cpu":
        return torch.device("cpu")
    # Workers take the GPUs in turn; more workers than GPUs share them.
    number = int("".join(filter(str.isdigit, env.worker)) or 0)
    return torch.device("cuda", number % max(1, torch.cuda.device_count()))


def uses_nccl(device: torch.device, spec: JobSpec, address: str) -> bool:
    """NCCL needs a GPU of its own for each worker; where they share, the gradients travel through the host.

    So they do between the machines of a job with TLS, for NCCL cannot encrypt, unless the job says that it need not.
    """
    if device.type != "cuda" or torch.cuda.device_count() < spec.workers.max:
        return False
    return not spec.security.is_on or spec.security.plain_nccl or is_loopback(address)
