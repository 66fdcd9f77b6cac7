"""Jobs of pods succeed although pods are deleted, and end with the bits of one machine."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509

from elasticdl.launcher.kubernetes.pod_template import SECRET_MOUNT, STATE_MOUNT
from tests.cluster.job import SMALL, ClusterJob, Named
from tests.cluster.kube import Kube
from tests.integration.job import EPOCHS, RECORDS, STEPS, digest
from tests.integration.test_ps_leases import BATCH, assert_each_record_counts_once

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

LIFETIME_S = 30
BACK_S = 20.0  # a pod that ends, one that starts, Python and torch


def restarts(job: ClusterJob) -> int:
    return sum(event["kind"] == "master-restarted" for event in job.events())


def test_a_job_of_pods_has_the_bits_of_a_job_on_one_machine(named: Named, undisturbed: str) -> None:
    job = named("plain")
    job.train(2)
    assert job.digest() == undisturbed
    result = job.result()
    assert (result["step"], result["records"]) == (STEPS, EPOCHS * RECORDS)
    job.wait_retired()
    assert job.result()["master_restarts"] == 0  # nobody started it again before its pod was gone


def test_a_deleted_worker_is_replaced_and_changes_nothing(kube: Kube, named: Named, undisturbed: str) -> None:
    job = named("deleted")
    job.train(2, "--min_workers=1", slow=True)
    worker = job.wait_members(2, step=3)[1]
    kube.kubectl("delete", "pod", f"{job.name}-{worker}", "--wait=false")
    job.wait(lambda: [e for e in job.events() if e["kind"] in ("worker-left", "worker-lost")], "the loss")
    job.wait_members(2, step=5)
    job.hurry()

    assert job.digest() == undisturbed
    assert job.result()["workers_failed"] == 0


def test_a_deleted_master_is_replaced_and_the_job_continues(kube: Kube, named: Named, undisturbed: str) -> None:
    job = named("headless")
    job.train(2, slow=True)
    job.wait_members(2, step=3)
    for times in (1, 2, 3):
        (master,) = job.pods("master")
        kube.kubectl("delete", "pod", master, "--wait=false")
        began = time.monotonic()
        job.wait(partial(lambda count: restarts(job) >= count, times), "the next master")
        assert time.monotonic() - began < BACK_S, "it is not made to wait, however often it was deleted"
    job.hurry()

    assert job.digest() == undisturbed
    assert job.result()["master_restarts"] == 3


def test_a_job_with_ps_counts_every_record_once_though_a_ps_and_a_worker_are_deleted(kube: Kube, named: Named) -> None:
    job = named("counted")
    job.start(
        "train", "--model_def=counting.forward", f"--model_params=slow={job.slow};pause_s=0.05",
        "--training_data=made-up", f"--num_epochs={EPOCHS}", f"--minibatch_size={BATCH}", "--num_workers=2",
        "--max_workers=2", "--num_ps_pods=2", "--ps_backups=1", "--ps_mode=async", "--embedding_on_ps=all",
        f"--ps_resource_request={SMALL}", slow=True,
    )  # fmt: skip
    job.wait(lambda: int(job.published().get("records", 0)) > 50, "the first records")
    kube.kubectl("delete", "pod", f"{job.name}-ps-0", "--wait=false", "--grace-period=0", "--force")
    kube.kubectl("delete", "pod", f"{job.name}-worker-0", "--wait=false")
    job.wait(lambda: [e for e in job.events() if e["kind"] == "ps-serving" and e["replica"] == "ps-2"], "another ps")
    job.hurry()

    assert_each_record_counts_once(job)  # type: ignore[arg-type]
    assert job.result()["workers_failed"] == 0


def test_each_replica_has_a_certificate_of_its_own_which_is_replaced_while_the_job_runs(
    kube: Kube, named: Named, undisturbed: str
) -> None:
    job = named("enrolled")
    job.train(2, f"--tls_lifetime_s={LIFETIME_S}", slow=True, pause_s=1.0)
    workers = job.wait_members(2, step=1)
    first = {replica: certificate(job, replica) for replica in (*workers, "master")}
    held = {replica: kube.kubectl("exec", f"{job.name}-{replica}", "--", "ls", SECRET_MOUNT) for replica in workers}

    assert [uris(first[worker]) for worker in workers] == [[f"elasticdl://{job.name}/worker/{w}"] for w in workers]
    assert all("authority.key" not in files and "worker.pem" in files for files in held.values()), held
    assert all(cert.not_valid_after_utc.timestamp() < time.time() + LIFETIME_S + 5.0 for cert in first.values())

    ends = [cert.not_valid_after_utc.timestamp() for cert in first.values()]
    job.wait(lambda: time.time() > max(ends) + 1.0, "the end of the first certificates")
    later = {replica: certificate(job, replica) for replica in first}
    assert all(later[replica].public_key() != cert.public_key() for replica, cert in first.items())
    assert all(uris(later[replica]) == uris(cert) for replica, cert in first.items())

    (master,) = job.pods("master")
    kube.kubectl("delete", "pod", master, "--wait=false")
    job.wait(lambda: restarts(job) == 1, "another master, which has the key of the authority, too")
    kube.kubectl("delete", "pod", f"{job.name}-{workers[1]}", "--wait=false")
    job.wait(lambda: len(set(job.wait_members(2)) | set(workers)) == 3, "another worker, by a certificate of its own")
    job.hurry()

    assert job.digest() == undisturbed
    assert job.result()["workers_failed"] == 0


def certificate(job: ClusterJob, replica: str) -> x509.Certificate:
    """The current certificate in the pod of a replica."""
    pod = f"{job.name}-{replica}{'-0' if replica == 'master' else ''}"
    text = job.kube.kubectl("exec", pod, "--", "cat", f"{STATE_MOUNT}/job/certificates/{replica}.pem")
    return x509.load_pem_x509_certificate(text.encode())


def uris(cert: x509.Certificate) -> list[str]:
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def test_on_claims_a_new_master_finds_its_journal_and_the_model_is_kept(
    kube: Kube, named: Named, tmp_path: Path, undisturbed: str
) -> None:
    job = named("claimed")
    for name in ("journal", "models"):
        (tmp_path / name).mkdir()
        kube.kubectl("apply", "--filename=-", text=claim(f"{job.name}-{name}", tmp_path / name))
    try:
        volumes = f"host_path={tmp_path},mount_path={tmp_path};claim_name={job.name}-models,mount_path=/models"
        job.train(
            2, f"--journal_claim={job.name}-journal", f"--volume={volumes}", "--output=/models/here", slow=True
        )  # fmt: skip
        job.wait_members(2, step=3)
        kube.kubectl("delete", "pod", f"{job.name}-master-0", "--wait=false")
        job.wait(lambda: restarts(job) == 1, "another master")
        job.hurry()

        assert job.result()["master_restarts"] == 1
        assert digest(tmp_path / "models" / "here" / "model.safetensors") == undisturbed
        journal_files = [path for path in (tmp_path / "journal" / job.name).rglob("*") if path.is_file()]
        assert any("journal" in path.name for path in journal_files), journal_files
        config_maps = json.loads(kube.kubectl("get", "configmaps", "--output=json"))["items"]
        assert not [
            config_map for config_map in config_maps if config_map["metadata"]["name"].startswith(f"{job.name}-journal")
        ]
    finally:
        job.delete()
        for name in ("journal", "models"):
            kube.kubectl("delete", "pvc", f"{job.name}-{name}", "--wait=false")
            kube.kubectl("delete", "pv", f"{job.name}-{name}", "--wait=false")


def claim(name: str, directory: Path) -> str:
    """A claim, and a volume that is its own: a directory of this machine, which all its nodes are."""
    size, modes = {"storage": "1Gi"}, ["ReadWriteMany"]
    volume = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": size, "accessModes": modes, "storageClassName": "", "hostPath": {"path": str(directory)}},
    }  # fmt: skip
    volume_claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "accessModes": modes, "storageClassName": "", "volumeName": name, "resources": {"requests": size},
        },
    }  # fmt: skip
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [volume, volume_claim]})
