"""Made-up snapshots of large clusters, to time a decision on: jobs of three measured models, most of them running."""

from __future__ import annotations

import random
import time

from elasticdl.scheduler import policies, priorities
from elasticdl.scheduler.models.goodput import AdaptiveBatchModel, BatchLimits
from elasticdl.scheduler.models.throughput import ThroughputModel
from elasticdl.scheduler.snapshot import GradientNoise, JobInfo, NodeInfo, Snapshot, SpeedSample

# Fits of ResNet-18, ResNet-50 and DeepSpeech 2 on T4s.
MODELS = (
    (ThroughputModel(0.0173, 7.0e-4, 0.121, 0.0024, 0.0316, 0.0010, 2.00), BatchLimits(128, 4096, 32, 1024)),
    (ThroughputModel(0.0645, 4.5e-3, 0.299, 0.0056, 0.0700, 1e-6, 2.49), BatchLimits(200, 12800, 20, 200)),
    (ThroughputModel(0.3040, 2.4e-2, 0.378, 0.0285, 0.0868, 0.0019, 1.43), BatchLimits(20, 640, 10, 80)),
)
SIZES = (1, 1, 2, 4, 8, 16, 32)


def crowd(nodes: int, devices: int, jobs: int, most: int, seed: int = 0) -> Snapshot:
    """Seven of ten jobs run, as long as there is room."""
    random_ = random.Random(seed)
    cluster = tuple(NodeInfo(f"node-{number}", devices) for number in range(nodes))
    free = [[node.name, node.devices] for node in reversed(cluster)]
    made = []
    for number in range(jobs):
        times, limits = random_.choice(MODELS)
        size = min(most, random_.choice(SIZES))
        workers: dict[str, int] = {}
        while random_.random() < 0.7 and sum(workers.values()) < size and free:
            name, left = free[-1]
            workers[str(name)] = min(int(left), size - sum(workers.values()))
            free[-1][1] = int(left) - workers[str(name)]
            if not free[-1][1]:
                free.pop()
        noise = GradientNoise(1.0, random_.uniform(0.1, 50.0))
        since = float(number) if workers else None
        made.append(
            JobInfo(
                f"job-{number}", float(number), 1, most, workers=workers, started_at=since, changed_at=since,
                change_cost_s=0.4, max_workers_so_far=size, speeds=(SpeedSample(1, size, 64, 0.1, 0.09),), noise=noise,
                rates=AdaptiveBatchModel(times, noise, limits), work_left=random_.uniform(1e3, 1e6), work_done=100.0,
            )
        )  # fmt: skip
    return Snapshot(1e5, cluster, tuple(made))


def decided_s(policy: str, snapshot: Snapshot, times: int) -> tuple[list[float], int]:
    """Processor seconds of each of so many decisions, and how many workers the last one gave."""
    rule, took, given = policies.load_policy(policy), [], 0
    for _ in range(times):
        began = time.process_time()
        decision = priorities.decide_by_priority(rule, snapshot, None)
        took.append(time.process_time() - began)
        given = sum(one.worker_count for one in decision.plan.allocations.values())
    return took, given
