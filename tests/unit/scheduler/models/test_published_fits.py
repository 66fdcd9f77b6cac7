"""Our fitter against the published one, on the published measurements.

Points are the means of placements.csv by (nodes, workers, local batch), and scalability.csv beside them: with these the
artifact's own routine gave the parameters below. (With every row of placements.csv, or with means alone, it is others:
BERT's α_n is 1.35 and 1.33 instead of 1.40.) Compared are the parameters that are determined by the data, and how far
the fitted step times are from the measured ones. Not determined are those near their bound: BERT's waiting on one node
and ImageNet's β_l.
"""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest

from elasticdl.scheduler.models.throughput import ThroughputModel, fit_throughput
from elasticdl.scheduler.snapshot import SpeedSample
from elasticdl.sim.traces import pollux
from tests.unit.scheduler.traces import TRACES, needs_traces

# Parameters, and the mean error of a step's time in percent.
PUBLISHED = {
    "bert": (ThroughputModel(0.17654, 0.058542, 1.3972, 0.0086171, 2.7e-5, 1e-8, 1.843), 8.0),
    "cifar10": (ThroughputModel(0.017756, 6.9731e-4, 0.12769, 0.0026052, 0.034198, 0.0016465, 2.235), 7.9),
    "ncf": (ThroughputModel(0.0070866, 5.726e-7, 0.0178, 5.6225e-4, 0.0058272, 2.4663e-4, 1.265), 10.8),
    "imagenet": (ThroughputModel(0.064378, 0.0044895, 0.32033, 0.0061824, 0.075675, 4.4e-7, 2.482), 8.1),
    "deepspeech2": (ThroughputModel(0.3128, 0.023442, 0.5044, 0.0097455, 0.10818, 0.0045388, 1.475), 8.9),
    "yolov3": (ThroughputModel(0.19308, 0.025602, 0.74501, 0.010124, 0.11511, 0.022931, 1.106), 11.5),
}
TOLERANCE = 0.02
DETERMINED_S = 1e-4  # what is less is noise beside a step; β_g of NCF is a matter of thousands of records


@needs_traces
@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_parameters_are_the_published_ones_and_the_error_no_greater(name: str) -> None:
    published, error = PUBLISHED[name]
    points = pollux.load_application(TRACES / name).points
    fitted = fit_throughput([_sample(row) for row in points])

    for row, (ours, theirs) in enumerate(zip(astuple(fitted), astuple(published), strict=True)):
        if theirs > DETERMINED_S or row < 2:
            assert ours == pytest.approx(theirs, rel=TOLERANCE)
        else:
            assert ours < DETERMINED_S
    steps = fitted.step_s(points[:, 1], points[:, 0], points[:, 2])
    assert 100 * np.mean(np.abs(steps / points[:, 3] - 1)) <= error + 1.0


def _sample(row: np.ndarray) -> SpeedSample:
    nodes, workers, local, step, sync = (float(sample) for sample in row)
    return SpeedSample(int(nodes), int(workers), int(local), step, step - sync)
