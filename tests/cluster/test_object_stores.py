"""Jobs of pods whose data, checkpoints and output are in an object store; no volume is used."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from elasticdl.checkpoint import manifest
from elasticdl.storage.paths import StorePath, parse_path
from tests.cluster.job import ClusterJob, Named
from tests.cluster.kube import ROOT, Kube
from tests.integration.job import Jobs, digest
from tests.integration.test_s3_job import BATCH, EPOCHS, STEPS, make_csv, train
from tests.s3 import BUCKET, S3Server, serve_s3

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

DATA, RUN = f"s3://{BUCKET}/clicks/data.csv", f"s3://{BUCKET}/run-7"
DOCUMENT = ROOT / "docs" / "object-stores.md"


def documented_policy() -> dict[str, object]:
    """The least that a job may be allowed, as the documentation has it, for the bucket of the tests."""
    (text,) = re.findall(r"```json\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    policy: dict[str, object] = json.loads(text.replace(":::shop", f":::{BUCKET}"))
    return policy


def address_for(kube: Kube) -> str:
    """An address of this machine that is reached from the cluster: the one by which this machine reaches it."""
    server = kube.kubectl("config", "view", "--minify", "--output=jsonpath={.clusters[0].cluster.server}")
    url = urlsplit(server)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((url.hostname, url.port or 443))
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module")
def server(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An object store that contains the data."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    with serve_s3(tmp_path_factory.mktemp("s3") / "server.log", address_for(kube)) as store:
        assert store.request("PUT", f"/{BUCKET}/clicks/data.csv", make_csv().encode())[0] == 200
        yield store


@pytest.fixture(scope="module")
def credentials(server: S3Server) -> Iterator[dict[str, str]]:
    """Credentials of a user with only the documented policy; this process uses them, too."""
    keys = server.admit("job", documented_policy())
    server.lock()
    with pytest.MonkeyPatch.context() as environ:
        for name, value in (server.environ | keys).items():
            environ.setenv(name, value)
        yield keys


@pytest.fixture(scope="module")
def local_digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The bits of a run with local files that nobody disturbs."""
    home = tmp_path_factory.mktemp("local")
    (home / "data.csv").write_text(make_csv())
    jobs = Jobs(home)
    try:
        return train(jobs, "local", str(home / "data.csv"), str(home / "local-output")).digest()
    finally:
        jobs.end()


def make_secret(kube: Kube, name: str, variables: Mapping[str, str]) -> None:
    literals = [f"--from-literal={key}={value}" for key, value in variables.items()]
    kube.kubectl("create", "secret", "generic", name, *literals)


def start(job: ClusterJob, server: S3Server, secret: str, *options: str, slow: bool = False) -> None:
    if slow:
        job.slow.touch()
    job.kube.elasticdl(
        "train", "--detach", *job.pod_options(), f"--model_zoo={ROOT / 'tests' / 'integration'}",
        "--model_def=tiny_csv.forward", f"--model_params=slow={job.slow};pause_s=0.3", f"--training_data={DATA}",
        f"--num_epochs={EPOCHS}", f"--global_batch_size={BATCH}", "--logical_ranks=4", "--max_workers=4",
        "--num_workers=2", f"--output={RUN}/model", f"--checkpoint_dir={RUN}/checkpoints", f"--env_secrets={secret}",
        f"--envs=AWS_ENDPOINT_URL={server.endpoint},AWS_DEFAULT_REGION=us-east-1", *options,
    )  # fmt: skip


def test_a_job_of_pods_is_stopped_and_resumed_from_the_store_alone(
    kube: Kube, named: Named, server: S3Server, credentials: dict[str, str], local_digest: str, tmp_path: Path
) -> None:
    first, second = named("stored"), named("resumed")
    make_secret(kube, "store", credentials)
    try:
        start(first, server, "store", slow=True)
        first.wait_members(2, step=5)
        kube.elasticdl("stop", first.name)
        stopped = first.result()
        assert stopped["phase"] == "stopped", first.story()
        assert stopped["checkpoint"].startswith(f"{RUN}/checkpoints/checkpoint-")
        ours = f"--selector=elasticdl.org/job={first.name}"
        held = kube.kubectl("get", "pods,statefulsets,configmaps", ours, "--output=yaml")
        assert credentials["AWS_SECRET_ACCESS_KEY"] not in held

        start(second, server, "store", "--resume")
        result = second.result()
    finally:
        kube.kubectl("delete", "secret", "store")

    assert (result["phase"], result["exit_code"], result["step"]) == ("succeeded", 0, STEPS), second.story()
    (entered,) = [event for event in second.events() if event["kind"] == "round-entered"]
    assert STEPS > stopped["checkpoint_step"] >= 5
    assert entered["step"] >= stopped["checkpoint_step"]
    (resumed,) = [event for event in second.events() if event["kind"] == "resumed"]
    assert resumed["reason"].startswith(
        f"from step {stopped['checkpoint_step']} of job {first.name}, {stopped['records']} of"
    )
    model = parse_path(f"{RUN}/model", retry_s=20.0)
    assert isinstance(model, StorePath)
    (model / "model.safetensors").download(tmp_path / "exported.safetensors")
    assert digest(tmp_path / "exported.safetensors") == local_digest
    assert manifest.list_checkpoints(parse_path(f"{RUN}/checkpoints", retry_s=20.0))[
        0
    ].name == manifest.checkpoint_name(STEPS)


def test_wrong_credentials_fail_the_job_before_a_worker_is_launched(
    kube: Kube, named: Named, server: S3Server, credentials: dict[str, str]
) -> None:
    job = named("refused")
    make_secret(kube, "wrong", credentials | {"AWS_SECRET_ACCESS_KEY": "not-the-key"})
    try:
        start(job, server, "wrong")
        result = job.result()
    finally:
        kube.kubectl("delete", "secret", "wrong")

    assert (result["phase"], result["exit_code"]) == ("failed", 2), result
    assert "the store refuses it" in result["reason"]
    assert "not-the-key" not in json.dumps(result)
    assert not job.pods("worker")
