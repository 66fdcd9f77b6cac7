"""The operator as a process, against a real API server. Controllers are played by the test."""

from __future__ import annotations

import signal

from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.launcher.kubernetes import status_map
from elasticdl.operator.finalizer import FINALIZER
from tests.integration.kube.apiserver import ApiServer
from tests.integration.kube.conftest import Start
from tests.integration.kube.elastic_job import install, resource
from tests.integration.kube.looking import begun, condition, events, owned, phase, read, replicas, versions
from tests.waiting import until


def test_a_job_gets_its_objects_and_they_belong_to_it(start: Start, api: Api) -> None:
    operator = start()
    api.create(resource("mnist"))

    job = begun(api)
    found = owned(api, job["metadata"]["uid"])

    assert {"ConfigMap mnist-spec", "Secret mnist-secret", "Service mnist-master", "StatefulSet mnist-master"} <= set(
        found
    )
    assert {"Role mnist-master", "RoleBinding mnist-master", "ServiceAccount mnist-worker"} <= set(found)
    for document in found.values():
        (owner,) = document["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["controller"], owner["blockOwnerDeletion"]) == ("ElasticJob", True, True)
    assert found["StatefulSet mnist-master"]["spec"]["replicas"] == 1
    assert job["status"]["workersText"] == "0/4 (2-8)"
    assert job["metadata"]["finalizers"] == [FINALIZER]
    assert operator.figures("healthz") == "ok\n"
    assert events(api, "Created") == ["Created the master of the job: StatefulSet mnist-master"]


def test_an_operator_that_comes_back_touches_nothing(start: Start, api: Api) -> None:
    first = start()
    api.create(resource("mnist"))
    job = begun(api)
    before = versions(owned(api, job["metadata"]["uid"]))

    first.end(signal.SIGKILL)
    second = start()
    until("the second has looked", lambda: 'reconciled_total{outcome="done"}' in second.figures())
    api.create(resource("other"))
    begun(api, "other")

    assert versions(owned(api, job["metadata"]["uid"])) == before
    assert read(api)["metadata"]["resourceVersion"] == job["metadata"]["resourceVersion"]


def test_an_api_server_that_was_away_is_no_reason_to_stop(start: Start, api: Api, server: ApiServer) -> None:
    operator = start()
    api.create(resource("mnist"))
    job = begun(api)
    before = versions(owned(api, job["metadata"]["uid"]))

    server.kill()  # for longer than a Lease lasts
    until("the operator has lost its Lease", lambda: not operator.leads())
    server.start()
    api.create(resource("other"))
    begun(api, "other")

    assert versions(owned(api, job["metadata"]["uid"])) == before
    assert operator.process.poll() is None


def test_what_was_deleted_is_made_again_but_never_the_secret(start: Start, api: Api) -> None:
    start()
    api.create(resource("mnist"))
    begun(api)
    api.delete(kinds.SERVICE, "mnist-master")
    api.delete(kinds.SECRET, "mnist-secret")

    api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"workers": {"replicas": 5}}})
    until("the Service is back", lambda: api.get(kinds.SERVICE, "mnist-master"))
    until("the Secret is missed", lambda: condition(api, "SpecApplied").get("status") == "False")

    assert "Secret mnist-secret was deleted" in condition(api, "SpecApplied")["message"]
    assert api.get(kinds.SECRET, "mnist-secret") is None
    assert events(api, "Recreated") == ["Service mnist-master had been deleted"]


def test_the_definition_may_come_after_the_operator(start: Start, api: Api) -> None:
    api.delete(kinds.CRD, "elasticjobs.elasticdl.org")
    until("the definition is gone", lambda: not api.get(kinds.CRD, "elasticjobs.elasticdl.org"))
    operator = start()
    until("it waits for the definition", lambda: "does not serve elasticjobs" in operator.log.read_text())

    install(api)
    api.create(resource("mnist"))

    begun(api)


def test_a_spec_no_rule_could_refuse_is_invalid_and_stays_so_until_it_is_changed(start: Start, api: Api) -> None:
    start()
    api.create(resource("mnist", plan={"global_batch_size": 3}))

    until("the job is invalid", lambda: phase(api) == "Invalid")
    accepted = condition(api, "Accepted")
    until("an event", lambda: events(api, "Invalid"))
    api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"plan": {"global_batch_size": 64}}})

    assert (accepted["status"], accepted["reason"]) == ("False", "Invalid")
    assert "plan.global_batch_size: 3 is smaller than the 8 logical ranks" in accepted["message"]
    begun(api)
    assert condition(api, "Accepted")["status"] == "True"


def test_a_change_that_cannot_be_followed_is_said_and_a_wish_is_not(start: Start, api: Api) -> None:
    start()
    api.create(resource("mnist"))
    job = begun(api)
    before = versions(owned(api, job["metadata"]["uid"]))

    api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"workers": {"replicas": 8}}})
    until("the wish is seen", lambda: read(api)["status"]["observedGeneration"] == 2)
    wish = condition(api, "SpecApplied")
    api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"plan": {"epochs": 9}}})
    until("the change is seen", lambda: read(api)["status"]["observedGeneration"] == 3)
    epochs = condition(api, "SpecApplied")

    assert wish["status"] == "True"
    assert epochs["status"] == "False"
    assert "plan.epochs" in epochs["message"]
    assert len(until("an event", lambda: events(api, "UnsupportedChange"))) == 1
    assert versions(owned(api, job["metadata"]["uid"])) == before


def test_a_job_in_a_queue_has_its_label_and_waits_there(start: Start, api: Api) -> None:
    start()
    api.create(resource("mnist", cluster={"image": "elasticdl:ci", "queue": "team"}))
    job = begun(api)

    master = api.get(kinds.STATEFUL_SET, "mnist-master") or {}
    assert master["spec"]["replicas"] == 1  # Kueue holds its pod by a gate
    assert master["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert job["status"]["reason"] == "the pod of the master is not running yet; its queue is team"


def test_how_the_master_ended_is_how_the_job_ended(start: Start, api: Api) -> None:
    start()
    api.create(resource("mnist"))
    begun(api)

    status_map.write_refusal(api, "mnist", api.namespace, "no such model", 2)
    until("the job failed", lambda: phase(api) == "Failed")
    api.patch(kinds.ELASTIC_JOB, "mnist", {"spec": {"workers": {"replicas": 5}}})
    until("the wish is seen", lambda: read(api)["status"]["observedGeneration"] == 2)
    kept = replicas(api)
    api.delete(kinds.STATEFUL_SET, "mnist-master")
    api.create(resource("other"))
    begun(api, "other")

    assert kept == 0  # what is over is not let go again
    assert read(api)["status"]["reason"] == "no such model"
    assert condition(api, "Finished")["reason"] == "Failed"
    assert api.get(kinds.STATEFUL_SET, "mnist-master") is None  # nor begun anew


def test_a_result_that_the_status_does_not_know_is_no_reason_to_begin_again(start: Start, api: Api) -> None:
    """The operator was away when the job ended, and nobody wrote its status."""
    first = start()
    api.create(resource("mnist"))
    begun(api)
    first.end(signal.SIGKILL)
    status_map.write_refusal(api, "mnist", api.namespace, "no such model", 2)
    ended = versions(owned(api, read(api)["metadata"]["uid"]))

    start()
    until("the job failed", lambda: phase(api) == "Failed")

    assert versions(owned(api, read(api)["metadata"]["uid"])) == ended


def test_objects_of_another_are_not_taken(start: Start, api: Api) -> None:
    start()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mnist-secret", "namespace": api.namespace}}
    api.create(secret)
    api.create(resource("mnist"))

    (why,) = until("an event", lambda: events(api, "ReconcileBlocked"))
    reason = read(api)["status"]["reason"]
    api.delete(kinds.SECRET, "mnist-secret")
    until("the master is there", lambda: api.get(kinds.STATEFUL_SET, "mnist-master"))

    assert "Secret mnist-secret exists already and belongs to nobody" in why
    assert reason == why


def test_of_two_operators_one_acts_and_the_other_takes_over(start: Start, api: Api) -> None:
    first = start()
    until("the first leads", first.leads)
    second = start()
    until("the second answers", second.figures)
    api.create(resource("mnist"))
    begun(api)
    looked = 'reconciled_total{outcome="done"}' in second.figures()

    assert first.leads() and not second.leads() and not looked
    assert first.end() == 0
    until("the second leads", second.leads)
    api.create(resource("other"))
    begun(api, "other")
    assert len(events(api, "Created")) == 2
