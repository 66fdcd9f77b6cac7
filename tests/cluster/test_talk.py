"""The command line of the original, as its talk prints it, with a real image: TensorFlow and our model zoo."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import image, operator
from tests.cluster.job import ClusterJob
from tests.cluster.kube import Kube
from tests.integration.test_keras_job import PREDICT, WRITE

REASON = operator.why_not()
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800), pytest.mark.skipif(bool(REASON), reason=REASON)]

RECORDS, BATCH, WORKERS = 1280, 64, 2
STEPS = RECORDS // (BATCH * WORKERS)
ASKED = "cpu=1,memory=4096Mi,ephemeral-storage=1024Mi"
# Word for word. What is not in the talk's image (its data), and what shall stay (its output), comes by --volume.
COMMAND = [
    "train", "--image_name=elasticdl:ci", "--model_zoo=model_zoo",
    "--model_def=mnist_functional_api.mnist_functional_api.custom_model", "--training_data=/data/mnist/train",
    "--num_epochs=1", f"--master_resource_request={ASKED}", f"--worker_resource_request={ASKED}",
    f"--ps_resource_request={ASKED}", f"--minibatch_size={BATCH}", "--num_ps_pods=1", f"--num_workers={WORKERS}",
    "--job_name=test-train", "--distribution_strategy=ParameterServerStrategy", "--output=model_output",
]  # fmt: skip


class Talk(ClusterJob):
    """Its name is the talk's."""

    def __init__(self, kube: Kube, directory: Path) -> None:
        super().__init__(kube, "test-train", directory)
        self.name = "test-train"


@pytest.fixture(scope="module")
def loaded(kube: Kube) -> Kube:
    operator.load(image.ensure("tensorflow"))
    return kube


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("tensorflow")
    root = tmp_path_factory.mktemp("talk") / "data"
    (root / "mnist" / "train").mkdir(parents=True)
    target = root / "mnist" / "train" / "train.tfrecord"
    subprocess.run([sys.executable, "-c", WRITE, str(target), str(RECORDS)], check=True, capture_output=True)
    for directory in (root, *root.parents):  # pods read as another user than root
        if directory.is_relative_to("/tmp") and directory != Path("/tmp"):
            directory.chmod(0o755)
    return root


@pytest.fixture
def talk(loaded: Kube, tmp_path: Path) -> Iterator[Talk]:
    job = Talk(loaded, tmp_path)
    yield job
    job.delete()
    job.wait(lambda: not job.pods(), "the end of its pods")


def volumes(data: Path, output: Path) -> str:
    output.mkdir(mode=0o777)
    output.chmod(0o777)
    return f"--volume=host_path={data},mount_path=/data,read_only=true;host_path={output},mount_path=/model_output"


def test_the_command_of_the_talk_trains_and_exports_the_model(
    loaded: Kube, talk: Talk, data: Path, tmp_path: Path
) -> None:
    output = tmp_path / "model_output"

    done = loaded.elasticdl(*COMMAND, volumes(data, output), timeout_s=600.0)

    assert f"{RECORDS:,} trained = {RECORDS:,} records, none lost, none twice" in done.stdout
    assert "Traceback" not in done.stderr, done.stderr
    result = talk.result()
    assert (result["phase"], result["step"], result["records"]) == ("succeeded", STEPS, RECORDS)
    assert (result["workers_failed"], result["master_restarts"], result["output"]) == (0, 0, "/model_output")
    requests = talk.pods("worker")[f"{talk.name}-worker-0"]["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "1", "memory": "4Gi", "ephemeral-storage": "1Gi"}
    records = str(data / "mnist" / "train" / "train.tfrecord")
    served = subprocess.run(
        [sys.executable, "-c", PREDICT, str(output), records], check=True, capture_output=True, text=True
    )
    predictions = json.loads(served.stdout)
    right = sum(row.index(max(row)) == number % 10 for number, row in enumerate(predictions))
    assert right > RECORDS // 2, "it has learnt"


def test_without_a_volume_the_user_is_warned_that_the_model_is_deleted_with_its_pod(
    loaded: Kube, talk: Talk, data: Path
) -> None:
    done = loaded.elasticdl(*COMMAND, f"--volume=host_path={data},mount_path=/data,read_only=true", timeout_s=600.0)

    assert "note: --output=model_output is inside the pod that writes it and is deleted with it" in done.stderr
    assert "gone with its pod, where it lay in /var/lib/elasticdl/model_output" in done.stdout
    assert talk.result()["phase"] == "succeeded"


def test_a_job_larger_than_the_cluster_starts_with_the_workers_that_fit(loaded: Kube, talk: Talk, data: Path) -> None:
    nodes = loaded.get("nodes", "--selector=type!=kwok")["items"]
    cores = sum(int(node["status"]["allocatable"]["cpu"]) for node in nodes)
    done = loaded.elasticdl(
        *COMMAND, f"--volume=host_path={data},mount_path=/data,read_only=true",
        f"--num_workers={cores}", "--min_workers=1", timeout_s=600.0,
    )  # fmt: skip

    assert talk.result()["records"] == RECORDS
    assert re.search(r"worker-\d waits: Unschedulable: .*Insufficient cpu", done.stdout), done.stdout
