"""A master that cannot start, as a process against a real API server: it writes a result and is not restarted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.launcher.kubernetes import job_secrets, manifest, naming, pod
from elasticdl.spec import JobSpec
from elasticdl.spec.directory import JobDirectory
from tests.integration.kube.apiserver import ApiServer
from tests.unit.launcher.jobs import SMALL, job
from tests.unit.launcher.kubernetes.test_pod import mount

SOURCE = str(Path(pod.__file__).parents[3])


def submit_job(api: Api) -> JobSpec:
    spec = job(SMALL, namespace=api.namespace)
    master = api.create(manifest.master_stateful_set(spec, None))
    for document in manifest.job_objects(spec, job_secrets.create_secrets(spec), naming.Owner.from_object(master)):
        api.create(document)
    api.patch(kinds.STATEFUL_SET, "digits-master", {"spec": {"replicas": 1}})
    return spec


def run(server: ApiServer, api: Api, *argv: str) -> subprocess.CompletedProcess[str]:
    environ = dict(os.environ) | {
        "PYTHONPATH": SOURCE,
        "KUBECONFIG": str(server.kubeconfig(namespace=api.namespace)),
        "ELASTICDL_POD_IP": "127.0.0.1",
        "ELASTICDL_POD_NAME": "digits-master-0",
        "ELASTICDL_NAMESPACE": api.namespace,
        "ELASTICDL_REPLICA": "master",
    }
    command = [sys.executable, "-m", *argv]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60.0, check=False)


def outcome(api: Api) -> tuple[dict[str, Any], int]:
    """The result, and the desired number of the master's pods."""
    status, master = api.get(kinds.CONFIG_MAP, "digits-status"), api.get(kinds.STATEFUL_SET, "digits-master")
    assert status is not None and master is not None
    assert status["metadata"]["ownerReferences"][0]["uid"] == master["metadata"]["uid"]
    return json.loads(status["data"]["result.json"]), int(master["spec"]["replicas"])


def test_a_pod_without_its_token_writes_the_reason_as_a_result(server: ApiServer, api: Api, tmp_path: Path) -> None:
    submit_job(api)
    mounts = mount(tmp_path)
    (mounts.secret / "token").unlink()

    options = ["--spec", str(mounts.spec), "--secret", str(mounts.secret), "--state", str(mounts.state)]
    process = run(server, api, "elasticdl.launcher.kubernetes.pod", "master", *options)
    result, replicas = outcome(api)

    assert process.returncode == 2, process.stderr
    assert (result["phase"], result["exit_code"], replicas) == ("failed", 2, 0)
    assert "secret/token: expected a file" in result["reason"]


def test_a_master_without_its_config_map_writes_the_reason_as_a_result(
    server: ApiServer, api: Api, tmp_path: Path
) -> None:
    spec = submit_job(api)
    directory = JobDirectory(tmp_path / "job")
    directory.create_in_pod(spec, "token")
    api.delete(kinds.CONFIG_MAP, "digits-spec")  # the owner of its pods

    process = run(server, api, "elasticdl.master", str(directory.root), "--pods")
    result, replicas = outcome(api)

    assert process.returncode == 2, process.stderr
    assert (result["phase"], result["exit_code"], replicas) == ("failed", 2, 0)
    assert "has no ConfigMap of job digits" in result["reason"]
