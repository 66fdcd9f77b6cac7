"""Synthetic snapshots of large clusters for timing decisions: jobs of three measured models, most of them running."""

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


def large_snapshot(nodes: int, devices: int, jobs: int, max_workers: int, seed: int = 0) -> Snapshot:
    """Returns a snapshot in which seven of ten jobs run while devices are free."""
    generator = random.Random(seed)
    cluster = tuple(NodeInfo(f"node-{number}", devices) for number in range(nodes))
    free_nodes = [node.name for node in reversed(cluster)]
    free_devices = {node.name: node.devices for node in cluster}
    job_infos = []
    for number in range(jobs):
        throughput, limits = generator.choice(MODELS)
        size = min(max_workers, generator.choice(SIZES))
        workers: dict[str, int] = {}
        while generator.random() < 0.7 and sum(workers.values()) < size and free_nodes:
            node = free_nodes[-1]
            workers[node] = min(free_devices[node], size - sum(workers.values()))
            free_devices[node] -= workers[node]
            if not free_devices[node]:
                free_nodes.pop()
        noise = GradientNoise(1.0, generator.uniform(0.1, 50.0))
        started_at = float(number) if workers else None
        job_infos.append(
            JobInfo(
                f"job-{number}",
                float(number),
                1,
                max_workers,
                workers=workers,
                started_at=started_at,
                changed_at=started_at,
                change_cost_s=0.4,
                max_workers_so_far=size,
                speeds=(SpeedSample(1, size, 64, 0.1, 0.09),),
                noise=noise,
                rates=AdaptiveBatchModel(throughput, noise, limits),
                work_left=generator.uniform(1e3, 1e6),
                work_done=100.0,
            )
        )
    return Snapshot(1e5, cluster, tuple(job_infos))


def time_decisions(policy: str, snapshot: Snapshot, times: int) -> tuple[list[float], int]:
    """Returns the processor seconds of each decision, and the workers that the last one allocated."""
    loaded_policy, durations_s, allocated_workers = policies.load_policy(policy), [], 0
    for _ in range(times):
        started_s = time.process_time()
        decision = priorities.decide_by_priority(loaded_policy, snapshot, None)
        durations_s.append(time.process_time() - started_s)
        allocated_workers = sum(allocation.worker_count for allocation in decision.plan.allocations.values())
    return durations_s, allocated_workers
