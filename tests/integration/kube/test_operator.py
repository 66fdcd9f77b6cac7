"""The operator as a process, against a real API server. The tests act as controllers."""

from __future__ import annotations

import signal

from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.launcher.kubernetes import status_map
from elasticdl.operator.finalizer import FINALIZER
from tests.integration.kube.apiserver import ApiServer
from tests.integration.kube.conftest import StartOperator
from tests.integration.kube.elastic_job import install, resource
from tests.integration.kube.job_reader import (
    condition,
    event_messages,
    master_replicas,
    object_versions,
    owned_objects,
    phase,
    read_job,
    wait_until_pending,
)
from tests.waiting import until


def test_the_objects_of_a_job_are_created_and_owned_by_it(start: StartOperator, api: Api) -> None:
    operator = start()
    api.create(resource("mnist"))

    job = wait_until_pending(api)
    objects = owned_objects(api, job["metadata"]["uid"])

    assert {"ConfigMap mnist-spec", "Secret mnist-secret", "Service mnist-master", "StatefulSet mnist-master"} <= set(
        objects
    )
    assert {"Role mnist-master", "RoleBinding mnist-master", "ServiceAccount mnist-worker"} <= set(objects)
    for document in objects.values():
        (owner,) = document["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["controller"], owner["blockOwnerDeletion"]) == ("ElasticJob", True, True)
    assert objects["StatefulSet mnist-master"]["spec"]["replicas"] == 1
    assert job["status"]["workersText"] == "0/4 (2-8)"
    assert job["metadata"]["finalizers"] == [FINALIZER]
    assert operator.read_metrics("healthz") == "ok\n"
    created = until("the event of the master", lambda: event_messages(api, "Created"))
    assert created == ["Created the master of the job: StatefulSet mnist-master"]


def test_a_restarted_operator_changes_nothing(start: StartOperator, api: Api) -> None:
    first = start()
    api.create(resource("mnist"))
    job = wait_until_pending(api)
    before = object_versions(owned_objects(api, job["metadata"]["uid"]))

    first.end(signal.SIGKILL)
    second = start()
    until("the second operator has reconciled", lambda: 'reconciled_total{outcome="done"}' in second.read_metrics())
    api.create(resource("other"))
    wait_until_pending(api, "other")

    assert object_versions(owned_objects(api, job["metadata"]["uid"])) == before
    assert read_job(api)["metadata"]["resourceVersion"] == job["metadata"]["resourceVersion"]


def test_an_operator_survives_an_outage_of_the_api_server(start: StartOperator, api: Api, server: ApiServer) -> None:
    operator = start()
    api.create(resource("mnist"))
    job = wait_until_pending(api)
    before = object_versions(owned_objects(api, job["metadata"]["uid"]))

    server.kill()  # for longer than a Lease lasts
    until("the operator has lost its Lease", lambda: not operator.is_leader())
    server.start()
    api.create(resource("other"))
    wait_until_pending(api, "other")

    assert object_versions(owned_objects(api, job["metadata"]["uid"])) == before
    assert operator.process.poll() is None


def test_deleted_objects_are_recreated_but_never_the_secret(start: StartOperator, api: Api) -> None:
    start()
    api.create(resource("mnist"))
    wait_until_pending(api)
    api.delete(kinds.SERVICE, "mnist-master")
    api.delete(kinds.SECRET, "mnist-secret")

    api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"workers": {"replicas": 5}}})
    until("the Service is recreated", lambda: api.get(kinds.SERVICE, "mnist-master"))
    until("the missing Secret is reported", lambda: condition(api, "SpecApplied").get("status") == "False")

    assert "Secret mnist-secret was deleted" in condition(api, "SpecApplied")["message"]
    assert api.get(kinds.SECRET, "mnist-secret") is None
    assert until("an event", lambda: event_messages(api, "Recreated")) == ["Service mnist-master had been deleted"]


def test_the_definition_may_be_installed_after_the_operator(start: StartOperator, api: Api) -> None:
    api.delete(kinds.CRD, "elasticjobs.elasticdl.org")
    until("the definition is gone", lambda: not api.get(kinds.CRD, "elasticjobs.elasticdl.org"))
    operator = start()
    until("it waits for the definition", lambda: "does not serve elasticjobs" in operator.log.read_text())

    install(api)
    api.create(resource("mnist"))

    wait_until_pending(api)


def test_a_mistake_that_no_rule_can_express_makes_a_job_invalid_until_it_is_corrected(
    start: StartOperator, api: Api
) -> None:
    start()
    api.create(resource("mnist", plan={"global_batch_size": 3}))

    until("the job is invalid", lambda: phase(api) == "Invalid")
    accepted = condition(api, "Accepted")
    until("an event", lambda: event_messages(api, "Invalid"))
    api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"plan": {"global_batch_size": 64}}})

    assert (accepted["status"], accepted["reason"]) == ("False", "Invalid")
    assert "plan.global_batch_size: 3 is smaller than the 8 logical ranks" in accepted["message"]
    wait_until_pending(api)
    assert condition(api, "Accepted")["status"] == "True"


def test_an_unsupported_change_is_reported_and_a_change_of_replicas_is_not(start: StartOperator, api: Api) -> None:
    start()
    api.create(resource("mnist"))
    job = wait_until_pending(api)
    before = object_versions(owned_objects(api, job["metadata"]["uid"]))

    api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"workers": {"replicas": 8}}})
    until("the change of replicas is handled", lambda: read_job(api)["status"]["observedGeneration"] == 2)
    after_scaling = condition(api, "SpecApplied")
    api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"plan": {"epochs": 9}}})
    until("the change of epochs is handled", lambda: read_job(api)["status"]["observedGeneration"] == 3)
    after_change = condition(api, "SpecApplied")

    assert after_scaling["status"] == "True"
    assert after_change["status"] == "False"
    assert "plan.epochs" in after_change["message"]
    assert len(until("an event", lambda: event_messages(api, "UnsupportedChange"))) == 1
    assert object_versions(owned_objects(api, job["metadata"]["uid"])) == before


def test_a_job_in_a_queue_has_the_label_of_the_queue_and_is_pending(start: StartOperator, api: Api) -> None:
    start()
    api.create(resource("mnist", cluster={"image": "elasticdl:ci", "queue": "team"}))
    job = wait_until_pending(api)

    master = api.get(kinds.STATEFUL_SET, "mnist-master") or {}
    assert master["spec"]["replicas"] == 1  # Kueue delays its pod by a scheduling gate
    assert master["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert job["status"]["reason"] == "the pod of the master is not running yet; its queue is team"


def test_the_result_of_the_master_is_the_result_of_the_job(start: StartOperator, api: Api) -> None:
    start()
    api.create(resource("mnist"))
    wait_until_pending(api)

    status_map.write_refusal(api, "mnist", api.namespace, "no such model", 2)
    until("the job failed", lambda: phase(api) == "Failed")
    api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"workers": {"replicas": 5}}})
    until("the change of replicas is handled", lambda: read_job(api)["status"]["observedGeneration"] == 2)
    replicas_at_end = master_replicas(api)
    api.delete(kinds.STATEFUL_SET, "mnist-master")
    api.create(resource("other"))
    wait_until_pending(api, "other")

    assert replicas_at_end == 0  # a job that is over is not started again
    assert read_job(api)["status"]["reason"] == "no such model"
    assert condition(api, "Finished")["reason"] == "Failed"
    assert api.get(kinds.STATEFUL_SET, "mnist-master") is None  # nor created again


def test_a_job_whose_result_is_not_in_its_status_is_not_started_again(start: StartOperator, api: Api) -> None:
    """The operator did not run when the job ended, so its status was not written."""
    first = start()
    api.create(resource("mnist"))
    wait_until_pending(api)
    first.end(signal.SIGKILL)
    status_map.write_refusal(api, "mnist", api.namespace, "no such model", 2)
    versions_at_end = object_versions(owned_objects(api, read_job(api)["metadata"]["uid"]))

    start()
    until("the job failed", lambda: phase(api) == "Failed")

    assert object_versions(owned_objects(api, read_job(api)["metadata"]["uid"])) == versions_at_end


def test_objects_of_another_owner_are_not_adopted(start: StartOperator, api: Api) -> None:
    start()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mnist-secret", "namespace": api.namespace}}
    api.create(secret)
    api.create(resource("mnist"))

    (message,) = until("an event", lambda: event_messages(api, "ReconcileBlocked"))
    reason = read_job(api)["status"]["reason"]
    api.delete(kinds.SECRET, "mnist-secret")
    until("the master is created", lambda: api.get(kinds.STATEFUL_SET, "mnist-master"))

    assert "Secret mnist-secret exists already and belongs to nobody" in message
    assert reason == message


def test_the_second_of_two_operators_takes_over_when_the_first_ends(start: StartOperator, api: Api) -> None:
    first = start()
    until("the first is the leader", first.is_leader)
    second = start()
    until("the second serves metrics", second.read_metrics)
    api.create(resource("mnist"))
    wait_until_pending(api)
    has_reconciled = 'reconciled_total{outcome="done"}' in second.read_metrics()

    assert first.is_leader() and not second.is_leader() and not has_reconciled
    assert first.end() == 0
    until("the second is the leader", second.is_leader)
    api.create(resource("other"))
    wait_until_pending(api, "other")
    assert len(event_messages(api, "Created")) == 2
