"""What the experiments on a cluster share: the cluster of the test suite, and jobs whose workers hold one slot each."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slot_usage import SLOT

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the suite's own cluster and jobs

from tests.cluster.job import SMALL, ClusterJob
from tests.cluster.kube import HOST_IMAGE, ROOT, Kube, on_this_machine, running, why_not, write_adjustments

__all__ = [
    "HOST_IMAGE", "ROOT", "Kube", "SlotJob", "argument_parser", "cluster", "count_slots", "on_this_machine",
]  # fmt: skip

PER_RANK = 2  # records of a step for each logical rank
EPOCH_STEPS = 20


class SlotJob(ClusterJob):
    """A job of `tests/integration/tiny.py` that sleeps `pause_s` for each rank's share of a step while `slow` exists.

    It sleeps because the machine has fewer cores than the cluster has slots: so the time of a step follows the number
    of workers as if each slot were a GPU.
    """

    gate = ""  # a scheduling gate that holds its workers until it is removed

    def begin(
        self, replicas: int, *, min_workers: int, steps: int, ranks: int, pause_s: float, priority: str = ""
    ) -> None:
        self.epochs = math.ceil(steps / EPOCH_STEPS)
        self.batch = PER_RANK * ranks
        self.start(
            "train", "--model_def=tiny.forward", f"--model_params=slow={self.slow};pause_s={pause_s}",
            "--training_data=made-up", f"--data_reader_params=records={EPOCH_STEPS * self.batch}",
            f"--num_epochs={self.epochs}", f"--global_batch_size={self.batch}", f"--logical_ranks={ranks}",
            f"--num_workers={replicas}", f"--max_workers={replicas}", f"--min_workers={min_workers}",
            f"--worker_resource_request={SMALL},{SLOT}=1", *([f"--worker_pod_priority={priority}"] if priority else []),
            slow=True,
        )  # fmt: skip

    def options(self) -> list[str]:
        command = super().options()
        if self.gate:
            changes = on_this_machine()
            changes["worker_pod"]["spec"]["schedulingGates"] = [{"name": self.gate}]
            write_adjustments(self.shared_directory / f"{self.name}.yaml", changes)
        return command

    def is_exact(self) -> bool:
        """Returns whether it did every step once, on every record once an epoch, and no worker failed."""
        result = self.result()
        steps = self.epochs * EPOCH_STEPS
        counts = (result["phase"], result["step"], result["records"], result["workers_failed"])
        return counts == ("succeeded", steps, steps * self.batch, 0)

    def remove(self) -> None:
        """Deletes the job and waits until none of its pods holds a slot."""
        self.delete()
        self.wait(lambda: not self.pods(), "the end of its pods")


@contextmanager
def cluster() -> Iterator[Kube]:
    """Yields the cluster of KUBECONFIG, or one that is started and ends with the `with`."""
    if reason := why_not():
        sys.exit(reason)
    with running() as kube:
        os.environ["KUBECONFIG"] = kube.environ["KUBECONFIG"]  # for watches of our own
        kube.kubectl("apply", "--filename", str(ROOT / "deploy" / "manifests" / "priorities.yaml"))
        yield kube


def count_slots(kube: Kube) -> int:
    """Returns the slots of all nodes that accept any pod."""
    nodes = [node for node in kube.get("nodes")["items"] if not node["spec"].get("taints")]
    return sum(int(node["status"]["allocatable"].get(SLOT, 0)) for node in nodes)


def argument_parser(description: str, plot: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a short run, of about two minutes")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plot", type=Path, metavar="PNG", default=ROOT / "docs" / "images" / plot)
    return parser
