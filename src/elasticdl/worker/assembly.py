"""Puts the parts of an elastic training together around a model, and starts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from elasticdl.collective.gradients import GradientBuffers
from elasticdl.collective.squared_norms import SquaredNorms
from elasticdl.collective.tree import ReductionTree
from elasticdl.data.dataset import Dataset
from elasticdl.data.plan import TrainingPlan
from elasticdl.errors import SpecError
from elasticdl.model.adapted import AdaptedOptimizer
from elasticdl.model.callbacks import BestMetric, Callback
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobSpec, LrScaling
from elasticdl.storage.paths import AnyPath
from elasticdl.worker.checkpoints import (
    checkpoint_metadata,
    checkpoint_run_id,
    initialize_state,
    is_checkpoint_due,
    rescue_directories,
)
from elasticdl.worker.context import WorkerContext
from elasticdl.worker.embeddings.tables import EmbeddingTables
from elasticdl.worker.evaluator import Evaluator
from elasticdl.worker.reading.feed import Feed, open_feed
from elasticdl.worker.rounds.engine import ElasticEngine
from elasticdl.worker.rounds.membership import EnteredRound
from elasticdl.worker.rounds.step_report import StepReportLayout
from elasticdl.worker.saver import CheckpointSaver, SaverOptions
from elasticdl.worker.training.adaptive_batch import AdaptiveBatch
from elasticdl.worker.training.loop import TrainingSetup
from elasticdl.worker.training.loss_history import LossHistory
from elasticdl.worker.training.state import TrainingState
from elasticdl.worker.training.step import Step


@dataclass(frozen=True)
class ElasticTraining:
    """The parts of an elastic training. Implements `elasticdl.torch.join.TrainingRun`."""

    context: WorkerContext
    engine: ElasticEngine
    saver: CheckpointSaver
    feed: Feed
    evaluator: Evaluator | None

    def start(self) -> None:
        """Start the threads of the training and tell the master its plan; this worker is ready to join a round."""
        master, training = self.context.master, self.training.register_hooks()
        master.use_loss_history(training.losses)
        self.saver.start()
        if self.evaluator is not None:
            self.evaluator.start()
        records = self.evaluator.records if self.evaluator is not None else 0
        master.report_plan(describe_plan(self.engine.plan, training.callbacks, records))
        master.report_ready()

    def close(self) -> None:
        self.feed.close()
        if self.evaluator is not None:
            self.evaluator.close()

    @property
    def training(self) -> TrainingState:
        return self.engine.training

    @property
    def name(self) -> str:
        return self.context.spec.name

    @property
    def worker(self) -> str:
        return self.context.env.worker

    @property
    def world_size(self) -> int:
        entered_round = self.context.rounds.current
        return entered_round.group.size if entered_round is not None else 1

    @property
    def is_first(self) -> bool:
        self.engine.join()
        self.engine.finish_loop_exit()
        entered_round = self.context.rounds.current
        return not self.engine.has_left and entered_round is not None and entered_round.rank == 0

    @property
    def stop_reason(self) -> str:
        return self.engine.stop_reason

    @property
    def has_left(self) -> bool:
        return self.engine.has_left

    def start_reading(self) -> None:
        """The share of this worker is known once it is in a round: reading starts there."""

    def steps(self) -> Iterator[Step]:
        return self.engine.steps()

    def stop(self, reason: str) -> None:
        self.engine.requested_stop_reason = self.engine.requested_stop_reason or reason

    def finish_loop_exit(self) -> None:
        self.engine.finish_loop_exit()


def assemble_training(
    context: WorkerContext,
    setup: TrainingSetup,
    dataset: Dataset | Feed,
    plan: TrainingPlan,
    evaluator: Evaluator | None = None,
) -> ElasticTraining:
    """Assemble an elastic training around the model of `setup`; `start` starts it."""
    spec, run_id, squares = context.spec, checkpoint_run_id(context), SquaredNorms()
    training = _make_training_state(spec, setup, plan, squares, run_id)
    directory = context.master.directory.checkpoints(spec)
    saver = CheckpointSaver(
        training,
        setup.tables.begin_snapshot,
        context.master,
        SaverOptions(
            directory,
            spec.checkpoint.keep_last,
            checkpoint_metadata(spec, plan, run_id),
            retry_s=spec.checkpoint.retry_s,
            one_at_a_time=setup.tables.has_rows,
            rescue_directories=rescue_directories(context),
            is_on=spec.has_durable_checkpoints,
            model_files=setup.model_files,
        ),
    )
    feed = open_feed(dataset, plan, setup.device)
    events = JobEvents(context, training, plan, setup.tables, saver, evaluator, directory)
    engine = ElasticEngine(context, training, feed, setup.tables, events, squares)
    return ElasticTraining(context, engine, saver, feed, evaluator)


class JobEvents:
    """The hooks of a job in the engine: its first state, checkpoints and evaluations."""

    def __init__(
        self,
        context: WorkerContext,
        training: TrainingState,
        plan: TrainingPlan,
        tables: EmbeddingTables,
        saver: CheckpointSaver,
        evaluator: Evaluator | None,
        directory: AnyPath,
    ) -> None:
        self._context = context
        self._training = training
        self._plan = plan
        self._tables = tables
        self._saver = saver
        self._evaluator = evaluator
        self._directory = directory

    def make_first_state(self) -> None:
        run_id = checkpoint_run_id(self._context)
        initialize_state(self._training, self._tables, self._context.spec, self._directory, run_id)

    def is_saved(self, step: int, before: int) -> bool:
        return is_checkpoint_due(self._context.spec, step, before)

    def after_step(self, entered_round: EnteredRound) -> None:
        training, results = self._training, self._context.master.evaluation_results
        is_first, is_end = entered_round.rank == 0, training.step >= self._plan.total_steps
        if is_first and not is_end and self.is_saved(training.step, training.update_start_step):
            self._saver.save()
        if self._evaluator is not None:
            self._evaluator.after_step(training, self._plan)
        while results:
            training.notify_evaluation(*results.popleft())


def _make_training_state(
    spec: JobSpec, setup: TrainingSetup, plan: TrainingPlan, squares: SquaredNorms, run_id: str
) -> TrainingState:
    trained_parameters = sum(parameter.requires_grad for parameter in setup.model.parameters())
    gradients = GradientBuffers(
        setup.model.parameters(),
        ReductionTree(plan.logical_ranks),
        StepReportLayout(plan.logical_ranks, trained_parameters).length,
        ordered=spec.plan.reproducible,
        squares=squares,
        warns=setup.user_state is not None,
    )
    training = TrainingState(
        setup.model,
        setup.optimizers,
        gradients,
        setup.callbacks,
        setup.learning_rate,
        make_adaptive_batch(spec, plan, setup.optimizers, run_id),
        setup.user_state,
        plan.seed,
    )
    training.losses = LossHistory(plan.steps_per_epoch, spec.observability.loss_interval(plan.total_steps))
    return training


def make_adaptive_batch(
    spec: JobSpec, plan: TrainingPlan, optimizers: Sequence[torch.optim.Optimizer], run_id: str
) -> AdaptiveBatch:
    """Raises SpecError where the rule of the job cannot scale the learning rate of these optimizers."""
    rule = spec.plan.lr_scaling
    if rule is not LrScaling.NONE and len(optimizers) > 1:
        raise SpecError(f"plan.lr_scaling: {rule} scales one optimizer, the script has {len(optimizers)}")
    if rule is not LrScaling.NONE and isinstance(optimizers[0], AdaptedOptimizer):
        raise SpecError(
            f"plan.lr_scaling: {rule} scales the learning rate of an optimizer of torch; "
            "the model is one of Keras: leave out --adaptive_batch"
        )
    return AdaptiveBatch(rule, plan.global_batch, spec.plan.batch_schedule, run_id)


def describe_plan(
    plan: TrainingPlan, callbacks: Sequence[Callback], validation_records: int, progress: bytes = b""
) -> pb.DataPlan:
    """Describes a training to the master: its length, its evaluation, and the metric of the best checkpoint."""
    best = next((callback for callback in callbacks if isinstance(callback, BestMetric)), None)
    return pb.DataPlan(
        total_steps=plan.total_steps,
        total_records=plan.total_records,
        records_per_epoch=plan.records_per_epoch,
        steps_per_epoch=plan.steps_per_epoch,
        validation_records=validation_records,
        best_metric=best.metric if best is not None else "",
        lower_is_better=best is not None and best.mode == "min",
        global_batch=plan.global_batch,
        progress=progress,
    )
