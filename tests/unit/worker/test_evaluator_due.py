from __future__ import annotations

import pytest

from elasticdl.data.plan import TrainingPlan
from elasticdl.spec import EvaluationSpec
from elasticdl.worker.evaluator import is_evaluation_due


@pytest.mark.parametrize(
    ("steps", "epochs", "expected"),
    [
        (0, 0, [5, 10, 15]),  # by default: each epoch
        (4, 0, [4, 8, 12, 15]),  # and at the end
        (0, 2, [10, 15]),
        (6, 1, [5, 6, 10, 12, 15]),
    ],
)
def test_evaluations_are_due_at_the_intervals_of_the_job(steps: int, epochs: int, expected: list[int]) -> None:
    plan = TrainingPlan(
        records=10, global_batch=2, logical_ranks=1, epochs=3, seed=0, shuffle=False, drop_last=False, max_steps=0
    )
    when = EvaluationSpec(every_steps=steps, every_epochs=epochs)

    assert [step for step in range(1, plan.total_steps + 1) if is_evaluation_due(step, plan, when)] == expected


def test_an_update_of_several_steps_is_evaluated_where_it_passes_a_multiple() -> None:
    plan = TrainingPlan(records=40, global_batch=2, logical_ranks=1, epochs=1)
    when = EvaluationSpec(every_steps=4)
    ends = [3, 6, 9, 12, 15, 18, 20]  # of updates of three steps

    spans = zip([0, *ends], ends, strict=False)

    assert [end for before, end in spans if is_evaluation_due(end, plan, when, before)] == [6, 9, 12, 18, 20]
