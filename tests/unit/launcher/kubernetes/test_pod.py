"""What a pod creates from its mounts before it runs a master, a worker or a ps."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from elasticdl.errors import SpecError
from elasticdl.launcher.kubernetes import job_secrets, manifest, pod
from elasticdl.launcher.kubernetes.pod import MountPaths
from elasticdl.ps.wire import keys
from elasticdl.spec.directory import JobDirectory, read_json
from elasticdl.spec.env import PodEnv, PsEnv, WorkerEnv
from tests.unit.launcher.jobs import MASTER_SET, SMALL, job

ENV = PodEnv(ip="10.1.2.3", name="digits-worker-0", namespace="default", replica="worker-0", run=7)


def mount(
    folder: Path, role: str = "worker", secrets: job_secrets.JobSecrets | None = None, **cluster: object
) -> MountPaths:
    """The mounts of a pod, as a kubelet creates them, with a working directory in the image."""
    spec = job(SMALL | {"output": "model_output", "checkpoint": {"directory": "kept"}}, **cluster)
    mounts = MountPaths(folder / "spec", folder / "secret", folder / "state", folder / "image")
    for path in (mounts.spec, mounts.secret, mounts.state, mounts.work):
        path.mkdir()
    documents = manifest.job_objects(spec, secrets or job_secrets.create_secrets(spec), MASTER_SET)
    objects = {document["kind"]: document for document in documents}
    names = job_secrets.secret_files(spec, role)
    secret = {name: text for name, text in objects["Secret"]["stringData"].items() if name in names}
    for path, files in ((mounts.spec, objects["ConfigMap"]["data"]), (mounts.secret, secret)):
        for name, text in files.items():
            (path / name).write_text(text)
            (path / name).chmod(0o440)
    return mounts


@pytest.mark.parametrize("role", ["master", "worker", "ps"])
def test_a_pod_has_the_jobs_directory(tmp_path: Path, role: str) -> None:
    mounts = mount(tmp_path, role)
    env = replace(ENV, replica="master" if role == "master" else f"{role}-0")

    directory = pod.prepare_job_directory(role, env, mounts)

    spec = directory.load_spec()
    assert directory == JobDirectory(mounts.state / "job")
    assert directory.load_token() == (mounts.secret / "token").read_text()
    assert read_json(directory.master) == {"address": "digits-master.default.svc:50001"}
    assert spec.security.is_on
    linked = {path.name: path.readlink() for path in directory.certificates.iterdir()}
    own = "authority.key" if role == "master" else f"{role}.pem"
    assert linked == {name: mounts.secret / name for name in ("authority.pem", own)}
    assert (spec.workers.address, spec.metrics_port) == {"master": ("0.0.0.0", 50002)}.get(role, ("10.1.2.3", 0))
    private = [directory.root, directory.spec, directory.token, directory.master, directory.certificates]
    if role != "master":
        assert keys.find_keys(directory.root) is not None
        private.append(directory.root / keys.KEYS_FILE)
    assert [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in private] == [0] * len(private)


def test_relative_paths_start_from_the_working_directory_of_the_image(tmp_path: Path) -> None:
    mounts = mount(tmp_path)

    spec = pod.prepare_job_directory("worker", ENV, mounts).load_spec()

    assert spec.model is not None
    assert (spec.model.zoo, spec.output) == (str(mounts.work / "model_zoo"), str(mounts.work / "model_output"))
    assert (spec.checkpoint.directory, spec.data.training) == (str(mounts.work / "kept"), "/data/train.csv")


def test_output_goes_to_the_state_directory_if_the_image_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = mount(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: mounts.work not in (path, *Path(path).parents))

    spec = pod.prepare_job_directory("worker", ENV, mounts).load_spec()

    assert (spec.output, spec.checkpoint.directory) == (str(mounts.state / "model_output"), str(mounts.state / "kept"))


def test_the_next_master_finds_the_files_of_the_previous_one(tmp_path: Path) -> None:
    mounts = mount(tmp_path)
    first = pod.prepare_job_directory("master", ENV, mounts)
    first.journal.write_text("what was decided")

    second = pod.prepare_job_directory("master", ENV, mounts)

    assert second.journal.read_text() == "what was decided"
    assert second.load_token() == (mounts.secret / "token").read_text()


def test_a_master_issues_its_own_certificate_and_so_does_the_next_one(tmp_path: Path) -> None:
    mounts, env = mount(tmp_path, "master"), replace(ENV, replica="master")
    issued = []
    for _ in range(2):
        directory = pod.prepare_job_directory("master", env, mounts)
        pod.start_certificate_renewal("master", env, directory)
        identity = directory.tls_credentials(directory.load_spec(), "master")
        assert identity is not None
        assert identity.server_context()
        issued.append(identity.certificate.read_text())

    assert issued[0] != issued[1]
    assert identity is not None
    assert stat.S_IMODE(identity.certificate.stat().st_mode) == 0o600


def test_a_master_without_the_key_of_its_authority_names_the_fix(tmp_path: Path) -> None:
    mounts, env = mount(tmp_path, "master"), replace(ENV, replica="master")
    (mounts.secret / "authority.key").unlink()

    with pytest.raises(SpecError, match=r"key of the job's authority .* version of ElasticDL that submitted"):
        pod.start_certificate_renewal("master", env, pod.prepare_job_directory("master", env, mounts))


def test_a_job_without_tls_has_neither_certificates_nor_keys(tmp_path: Path) -> None:
    directory = pod.prepare_job_directory("ps", ENV, mount(tmp_path, tls=False))

    assert not directory.load_spec().security.is_on
    assert not (directory.root / keys.KEYS_FILE).exists()


def test_a_pod_runs_the_program_of_its_role(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)

    argv, added = pod.replica_command("worker", ENV, directory)
    assert argv == ["elasticdl.worker"]
    assert WorkerEnv.from_environ(added) == WorkerEnv(tmp_path, ENV.replica, "10.1.2.3", 7)  # type: ignore[arg-type]
    argv, added = pod.replica_command("ps", ENV, directory)
    assert argv == ["elasticdl.ps"]
    assert PsEnv.from_environ(added).address == "10.1.2.3"
    assert pod.replica_command("master", ENV, directory) == (["elasticdl.master", str(tmp_path), "--pods"], {})


@pytest.mark.parametrize("missing", ["spec/spec.json", "secret/token"])
def test_a_missing_mount_is_named(tmp_path: Path, missing: str) -> None:
    mounts = mount(tmp_path)
    (tmp_path / missing).unlink()

    with pytest.raises(SpecError, match=f"{missing}: expected a file of the job's"):
        pod.prepare_job_directory("worker", ENV, mounts)


def test_a_pod_started_by_hand_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert pod.main(["worker"], {}) == 2
    assert "ELASTICDL_POD_IP is not set: this runs in the pods of a job" in capsys.readouterr().err
