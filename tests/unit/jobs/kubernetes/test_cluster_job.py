"""The commands of the command line on a job on a cluster behave as those on a local job."""

from __future__ import annotations

import io
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from google.protobuf.json_format import MessageToJson
from rich.console import Console

from elasticdl.cli import attach
from elasticdl.errors import ElasticDLError
from elasticdl.jobs import home as jobs
from elasticdl.jobs.kubernetes import cluster_job, submission
from elasticdl.jobs.kubernetes.pod_logs import PodLog
from elasticdl.journal_frames import FrameEncoder, JournalWriterInfo
from elasticdl.kube.api import Api
from elasticdl.kube.errors import ApiUnavailable
from elasticdl.kube.kinds import ELASTIC_JOB, SECRET, STATEFUL_SET
from elasticdl.launcher.kubernetes import job_secrets
from elasticdl.master.kubernetes import journal_segments
from elasticdl.master.kubernetes.journal_segments import JournalSegment
from elasticdl.master.machine import events as ev
from elasticdl.master.runtime import codec
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.spec import JobSpec, load
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi
from tests.unit.cli.served_master import ServedMaster

REFUSED = {"phase": "failed", "exit_code": 2, "reason": "no such model"}
RESULT = {"phase": "succeeded", "exit_code": 0, "reason": "", "step": 85}
EVENT = {"at": 1002.0, "kind": "worker-joined", "replica": "worker-0", "reason": "", "round": 1, "step": 0, "cost_s": 0}


@pytest.fixture
def spec() -> JobSpec:
    document = {"name": "digits", "model": {"definition": "m.f"}, "cluster": {"image": "i", "namespace": "default"}}
    return load.resolve_job(document)


@pytest.fixture
def secrets(spec: JobSpec) -> job_secrets.JobSecrets:
    return job_secrets.create_secrets(spec)


@pytest.fixture(autouse=True)
def submitted(cluster: FakeApi, spec: JobSpec, secrets: job_secrets.JobSecrets) -> None:
    submission.create_objects(cluster, spec, secrets)  # type: ignore[arg-type]


@pytest.fixture
def master(
    cluster: FakeApi, spec: JobSpec, secrets: job_secrets.JobSecrets, tmp_path: Path, status: pb.JobStatus
) -> Iterator[ServedMaster]:
    """A job that runs in a pod and is reached only through the API server."""
    (tmp_path / "pod").mkdir()
    served = ServedMaster(spec, secrets, tmp_path / "pod", status)
    cluster.master = served.address
    cluster.run_master("digits")
    yield served
    served.close()


def finish(cluster: FakeApi, status: pb.JobStatus) -> None:
    """End the job: the master has written its result and is gone."""
    status.phase = "succeeded"
    cluster.tell("digits", status_json=MessageToJson(status), events_jsonl=json.dumps(EVENT))
    cluster.end_job("digits", RESULT)
    cluster.objects = {key: resource for key, resource in cluster.objects.items() if key[0].kind != "Pod"}


def test_the_status_of_a_running_job_comes_from_its_master(elasticdl: Run, master: ServedMaster) -> None:
    document = json.loads(elasticdl("status", "digits", "--json").stdout)

    assert (document["phase"], document["records"], document["directory"]) == ("running", 1920, None)


def test_scale_and_stop_ask_the_master(elasticdl: Run, master: ServedMaster) -> None:
    assert elasticdl("scale", "digits", "--workers=3").stdout == "3 workers requested\n"
    assert elasticdl("stop", "digits").stdout == "digits: stopping, with a checkpoint\n"
    assert [type(request).__name__ for request in master.asked] == ["ScaleRequest", "StopRequest"]


def test_without_access_to_the_secret_the_status_comes_from_the_status_map(
    elasticdl: Run, cluster: FakeApi, master: ServedMaster, status: pb.JobStatus
) -> None:
    status.records = 1000
    cluster.tell("digits", status_json=MessageToJson(status))
    cluster.forbidden = {("get", "secrets")}

    assert json.loads(elasticdl("status", "digits", "--json").stdout)["records"] == 1000
    assert "forbidden" in elasticdl("stop", "digits").stderr


def test_the_status_of_an_ended_job_comes_from_the_status_map(
    elasticdl: Run, cluster: FakeApi, status: pb.JobStatus
) -> None:
    finish(cluster, status)

    document = json.loads(elasticdl("status", "digits", "--json").stdout)

    assert (document["phase"], [event["kind"] for event in document["events"]]) == ("succeeded", ["worker-joined"])
    assert "worker-0 joined" in elasticdl("status", "digits", "--events").stdout
    assert "elasticdl logs digits" in elasticdl("status", "digits").stdout
    assert "job 'digits' is over (succeeded)" in elasticdl("scale", "digits", "--workers=3").stderr


def test_a_job_whose_master_is_pending_has_the_reason_of_kubernetes(elasticdl: Run, cluster: FakeApi) -> None:
    why = {"reason": "ErrImagePull", "message": "pull access denied for i"}
    waits = [{"name": "master", "state": {"waiting": why}}]
    cluster.run_master("digits", phase="Pending", containerStatuses=waits)

    document = json.loads(elasticdl("status", "digits", "--json").stdout)

    assert document["phase"] == "pending"
    assert "pull access denied for i" in document["reason"]
    assert "pull access denied for i" in elasticdl("stop", "digits").stderr


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_job_that_was_refused_by_its_master_has_failed(
    elasticdl: Run, cluster: FakeApi, status: pb.JobStatus, has_begun: bool
) -> None:
    if has_begun:
        cluster.tell("digits", status_json=MessageToJson(status))
    cluster.end_job("digits", REFUSED)

    document = json.loads(elasticdl("status", "digits", "--json").stdout)

    assert (document["phase"], document["exit_code"], document["reason"]) == ("failed", 2, "no such model")


def test_a_job_without_a_pod_and_without_a_result_is_suspended(elasticdl: Run, cluster: FakeApi) -> None:
    cluster.objects[STATEFUL_SET, "default", "digits-master"]["spec"]["replicas"] = 0

    document = json.loads(elasticdl("status", "digits", "--json").stdout)

    assert (document["phase"], document["reason"]) == ("suspended", "it is suspended: its StatefulSet has no pods")


def test_a_suspended_job_has_no_workers_even_if_the_status_map_lists_some(
    elasticdl: Run, cluster: FakeApi, status: pb.JobStatus
) -> None:
    cluster.tell("digits", status_json=MessageToJson(status))
    cluster.objects[STATEFUL_SET, "default", "digits-master"]["spec"]["replicas"] = 0

    document = json.loads(elasticdl("status", "digits", "--json").stdout)

    assert (document["phase"], document["records"], document["workers"]) == ("suspended", 1920, [])


def elastic_job(cluster: FakeApi, name: str, **status: str) -> None:
    """Create an ElasticJob, with the status that an operator has written, if one did."""
    document = {"apiVersion": ELASTIC_JOB.api_version, "kind": ELASTIC_JOB.kind, "metadata": {"name": name}}
    cluster.create(document | {"spec": {"workers": {"replicas": 2}}} | ({"status": status} if status else {}))


def test_jobs_without_a_master_are_listed_with_the_reason(elasticdl: Run, cluster: FakeApi) -> None:
    elastic_job(cluster, "wrong", phase="Invalid", reason="model: which one?")
    elastic_job(cluster, "unseen")

    document = {listed["name"]: listed for listed in json.loads(elasticdl("jobs", "--on=kubernetes", "--json").stdout)}

    assert list(document) == ["digits", "wrong", "unseen"]
    assert (document["wrong"]["phase"], document["wrong"]["reason"]) == ("invalid", "model: which one?")
    assert document["unseen"]["phase"] == "pending" and "no operator has processed" in document["unseen"]["reason"]
    assert "has no master yet (invalid: model: which one?)" in elasticdl("logs", "wrong").stderr
    assert elasticdl("stop", "wrong", "--delete").stdout == "wrong: deleted\n"
    assert elasticdl("status", "wrong").exit_code == 2


def test_a_cluster_without_elastic_jobs_lists_its_other_jobs(elasticdl: Run, cluster: FakeApi) -> None:
    cluster.forbidden = {("list", "elasticjobs"), ("get", "elasticjobs")}

    assert [listed["name"] for listed in json.loads(elasticdl("jobs", "--on=kubernetes", "--json").stdout)] == [
        "digits"
    ]
    assert "no job 'digist'" in elasticdl("status", "digist").stderr


def test_scaling_a_job_also_changes_its_elastic_job(elasticdl: Run, cluster: FakeApi, master: ServedMaster) -> None:
    elastic_job(cluster, "digits", phase="Running")
    owner = {"apiVersion": ELASTIC_JOB.api_version, "kind": ELASTIC_JOB.kind, "name": "digits", "uid": "1"}
    master_set = cluster.objects[STATEFUL_SET, "default", "digits-master"]
    master_set["metadata"]["ownerReferences"] = [owner]

    assert elasticdl("scale", "digits", "--workers=3", "--ps=2").stdout == "3 workers requested\n"

    job_spec = cluster.objects[ELASTIC_JOB, "default", "digits"]["spec"]
    assert (job_spec["workers"]["replicas"], job_spec["ps"]["replicas"]) == (3, 2)
    master_set["spec"]["replicas"] = 0  # suspended: there is no master, but the ElasticJob is changed
    assert "it is suspended" in elasticdl("scale", "digits", "--workers=4").stdout
    assert cluster.objects[ELASTIC_JOB, "default", "digits"]["spec"]["workers"]["replicas"] == 4
    assert [request.workers for request in master.asked] == [3]


def test_the_reason_of_an_elastic_job_comes_from_the_scheduler(
    elasticdl: Run, cluster: FakeApi, status: pb.JobStatus
) -> None:
    for name in ("digits", "waits"):
        elastic_job(cluster, name, phase="Suspended", reason="spec.suspend is true")
        metadata = cluster.objects[ELASTIC_JOB, "default", name]["metadata"]
        metadata["annotations"] = {"elasticdl.org/scheduling": "others were first"}
    owner = {"apiVersion": ELASTIC_JOB.api_version, "kind": ELASTIC_JOB.kind, "name": "digits", "uid": "1"}
    master_set = cluster.objects[STATEFUL_SET, "default", "digits-master"]
    master_set["metadata"]["ownerReferences"] = [owner]
    status.desired_workers, status.max_workers = 2, 4
    cluster.tell("digits", status_json=MessageToJson(status))

    def reasons() -> list[str]:
        listed = json.loads(elasticdl("jobs", "--on=kubernetes", "--json").stdout)
        document = json.loads(elasticdl("status", "digits", "--json").stdout)
        return [document["reason"], *(job["reason"] for job in listed)]

    assert reasons() == ["others were first"] * 3
    master_set["spec"]["replicas"] = 0
    assert reasons() == ["others were first"] * 3
    cluster.end_job("digits", RESULT)
    assert "others" not in reasons()[0]


def test_local_jobs_and_jobs_on_the_cluster_are_listed_together(
    elasticdl: Run, cluster: FakeApi, spec: JobSpec, status: pb.JobStatus
) -> None:
    jobs.job_directory("mnist").create(spec.model_copy(update={"name": "mnist", "cluster": None}))
    cluster.tell("digits", status_json=MessageToJson(status))

    table = [line.split() for line in elasticdl("jobs").stdout.splitlines()]
    alone = [line.split() for line in elasticdl("jobs", "--on=local").stdout.splitlines()]

    assert [row[:2] for row in table] == [["job", "where"], ["mnist", "here"], ["digits", "fake/default"]]
    assert [row[:2] for row in alone] == [["job", "kind"], ["mnist", "training"]]
    assert [listed["name"] for listed in json.loads(elasticdl("jobs", "--on=kubernetes", "--json").stdout)] == [
        "digits"
    ]


def test_a_cluster_that_hangs_does_not_block_the_list(
    elasticdl: Run, cluster: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def hang(*_: object) -> None:
        ended.wait(60)
        raise ApiUnavailable("nobody waits for this any more")

    monkeypatch.setattr(cluster, "list", hang)
    monkeypatch.setattr("elasticdl.jobs.lookup.CLUSTER_TIMEOUT_S", 0.05)

    result = elasticdl("jobs")
    ended.set()

    assert result.exit_code == 0
    assert "the cluster did not answer within" in result.stderr


def test_a_local_job_wins_unless_the_user_chooses_the_cluster(
    elasticdl: Run, cluster: FakeApi, spec: JobSpec, status: pb.JobStatus
) -> None:
    jobs.job_directory("digits").create(spec.model_copy(update={"cluster": None}))
    finish(cluster, status)

    def phase(*words: str) -> str:
        return str(json.loads(elasticdl("status", "digits", "--json", *words).stdout)["phase"])

    assert (phase(), phase("--on=kubernetes"), phase("--namespace=default")) == ("failed", "succeeded", "succeeded")


def test_an_unknown_name_is_refused_with_the_closest_name_on_the_cluster(elasticdl: Run) -> None:
    nowhere, there = elasticdl("status", "digist"), elasticdl("status", "digist", "--on=kubernetes")

    for result in (nowhere, there):
        assert result.exit_code == 2
        assert "no job 'digist' in namespace default of context fake; did you mean 'digits'?" in result.stderr


def test_logs_of_pods_name_their_writer(elasticdl: Run, cluster: FakeApi) -> None:
    cluster.run_replica("digits", "worker-0", ["one", "two"])
    cluster.run_replica("digits", "worker-1", ["three"])

    assert elasticdl("logs", "digits").stdout.splitlines() == [
        " worker-0 | one",
        " worker-0 | two",
        " worker-1 | three",
    ]
    assert elasticdl("logs", "digits", "--worker=1").stdout == "three\n"
    assert "has no worker-7; did you mean" in elasticdl("logs", "digits", "--worker=7").stderr
    assert "no pod of master" in elasticdl("logs", "digits", "--master").stderr
    assert "the master launches the pods itself" in elasticdl("logs", "digits", "--launcher").stderr


def test_logs_are_followed_until_the_job_is_over(elasticdl: Run, cluster: FakeApi) -> None:
    cluster.run_replica("digits", "worker-0", ["one"])
    cluster.end_job("digits", RESULT)

    assert elasticdl("logs", "digits", "-f").stdout == " worker-0 | one\n"


def test_the_log_of_one_pod_is_read_as_it_grows(cluster: FakeApi) -> None:
    cluster.run_replica("digits", "worker-0", ["one", "two"])
    cluster.run_replica("digits", "worker-1", ["three"])
    log = PodLog(cast(Api, cluster), "default", "digits", "worker-0")

    assert list(log.read_new_lines(is_last=True)) == ["one", "two"]
    assert list(log.read_new_lines(is_last=True)) == []


@pytest.mark.parametrize("word", ["--now", "--delete"])
def test_a_job_is_deleted_by_its_owner(elasticdl: Run, cluster: FakeApi, word: str) -> None:
    result = elasticdl("stop", "digits", word)

    assert "digits: deleted; its pods end, and only the files on its volumes are left" in result.stdout
    assert cluster.calls[-1] == ("delete", "StatefulSet digits-master")


def test_the_job_of_an_elastic_job_is_deleted_through_the_elastic_job(elasticdl: Run, cluster: FakeApi) -> None:
    master = cluster.objects[STATEFUL_SET, "default", "digits-master"]
    master["metadata"]["ownerReferences"] = [{"kind": "ElasticJob", "name": "digits", "uid": "x"}]

    elasticdl("stop", "digits", "--delete")

    assert cluster.calls[-1] == ("delete", "ElasticJob digits")


def test_a_timeline_is_drawn_from_the_events(
    elasticdl: Run, cluster: FakeApi, status: pb.JobStatus, tmp_path: Path
) -> None:
    finish(cluster, status)

    result = elasticdl("timeline", "digits", "-o", tmp_path / "digits.png")

    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "digits.png").stat().st_size > 1000


def attached(cluster: FakeApi) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=200)
    with cluster_job.watch_cluster_job(cluster, "default", "digits") as watched:  # type: ignore[arg-type]
        code = attach.attach_terminal(watched, console)
        left = watched.directory.root
    assert not left.exists()
    assert isinstance(console.file, io.StringIO)
    return code, console.file.getvalue()


def test_watching_a_job_ends_with_its_result(cluster: FakeApi, master: ServedMaster, status: pb.JobStatus) -> None:
    # The first status is of a running job; the stream ends, and by then the job is over.
    threading.Timer(0.3, finish, (cluster, pb.JobStatus.FromString(status.SerializeToString()))).start()

    code, output = attached(cluster)

    assert code == 0
    assert "digits running: 1,920 of 5,391 records" in output
    assert "elasticdl logs digits" in output


def test_watching_a_job_reports_why_its_master_does_not_start(cluster: FakeApi) -> None:
    why = {"reason": "ErrImagePull", "message": "pull access denied for i"}
    cluster.run_master("digits", phase="Pending", containerStatuses=[{"name": "master", "state": {"waiting": why}}])
    threading.Timer(1.5, cluster.end_job, ("digits", REFUSED)).start()

    code, output = attached(cluster)

    assert code == 2
    assert "pull access denied for i" in output
    assert "no such model" in output


def test_an_error_while_reading_the_job_ends_the_watching(cluster: FakeApi) -> None:
    cluster.forbidden = {("get", "statefulsets")}

    with pytest.raises(ElasticDLError, match="lost sight of the job: get statefulsets"):
        attached(cluster)


def test_watching_reports_that_a_job_was_deleted(cluster: FakeApi) -> None:
    del cluster.objects[STATEFUL_SET, "default", "digits-master"]

    with pytest.raises(ElasticDLError, match="the job was deleted"):
        attached(cluster)


def test_a_second_interrupt_deletes_the_job(cluster: FakeApi, master: ServedMaster) -> None:
    before = signal.getsignal(signal.SIGINT)
    timers = [
        threading.Timer(delay_s, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
        for delay_s in (0.5, 0.8)
    ]
    for timer in timers:
        timer.start()

    code, output = attached(cluster)

    assert code == 130
    assert "digits: deleted" in output
    assert cluster.get(STATEFUL_SET, "digits-master") is None
    assert signal.getsignal(signal.SIGINT) is before


def test_no_secret_stays_on_this_machine(
    elasticdl: Run, cluster: FakeApi, master: ServedMaster, tmp_path: Path
) -> None:
    token = cluster.objects[SECRET, "default", "digits-secret"]["data"]["token"]
    assert token

    assert elasticdl("status", "digits").exit_code == 0

    home = jobs.jobs_directory()
    assert not home.exists()


def keep_journal(cluster: FakeApi, damaged: bool = False) -> None:
    encoder = FrameEncoder(JournalWriterInfo(run=1763164800))
    stream = encoder.begin_stream() + encoder.encode_records([codec.encode_event(ev.MasterStarted(1), 1000.0)])
    if damaged:
        stream = stream[:-3] + b"!" + stream[-2:]
    head = JournalSegment(0, "head", "m", journal_segments.JournalHead(((1, "m-1"),)).to_bytes())
    for segment in (head, JournalSegment(1, "m-1", "m", stream)):
        document = journal_segments.to_config_map(segment, "digits", cluster.namespace, {"uid": "uid-1"})
        document["metadata"]["resourceVersion"] = "1"
        cluster.create(document)


def test_the_journal_in_config_maps_is_verified(elasticdl: Run, cluster: FakeApi) -> None:
    keep_journal(cluster)

    done = elasticdl("journal", "verify", "digits")

    assert done.exit_code == 0, done.output
    assert "2 ConfigMaps digits-journal-… in namespace default" in done.output and "whole: 1 events" in done.output


def test_a_damaged_journal_in_config_maps_is_reported_with_the_fix(elasticdl: Run, cluster: FakeApi) -> None:
    keep_journal(cluster, damaged=True)

    done = elasticdl("journal", "verify", "digits")

    assert done.exit_code == 1
    assert "a record has a wrong checksum" in done.output
    assert "`elasticdl stop digits --delete`, and submit it again with --resume" in done.output


def test_a_journal_without_its_head_is_damaged(elasticdl: Run, cluster: FakeApi) -> None:
    none = elasticdl("journal", "verify", "digits")
    keep_journal(cluster)
    cluster.objects = {key: resource for key, resource in cluster.objects.items() if key[2] != "digits-journal-000000"}
    done = elasticdl("journal", "verify", "digits")

    assert (none.exit_code, "its master has not begun yet" in none.output) == (2, True)
    assert (done.exit_code, "its head is missing" in done.output) == (1, True)
