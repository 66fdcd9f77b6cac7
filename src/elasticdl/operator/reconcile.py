"""Brings what a cluster has to what an ElasticJob asks for. Creates what is missing; what is there stays as it is.

Called as often as anybody likes, by whoever leads: nothing is remembered between two calls, and a call that finds all
in place writes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.kube import kinds
from elasticdl.kube.api import Api
from elasticdl.kube.errors import AlreadyThere, ApiAway, Conflict
from elasticdl.launcher import certificates, last_word, manifest, naming
from elasticdl.operator import changes, holding, phases
from elasticdl.operator.holding import Ending
from elasticdl.operator.place import Document, Place, Say, Waiting
from elasticdl.spec.elastic_job import job_of
from elasticdl.spec.job import JobSpec


def reconcile(api: Api, resource: Document, say: Say) -> Document | None:
    """The master as it is left, if there is one.

    Raises TransientErrors to be called again; everything a person must know is in the status and in events.
    """
    place = Place(api, resource, say)
    if holding.is_going(resource):
        holding.let_go(api, resource, place.owners_of_pods())
        return None  # owner references take all else along
    job = master = result = None
    try:
        master = place.find(kinds.STATEFUL_SET, place.master_name)
        job = _asked(place, master)
        result = _result(place, master)
        if job is not None and result is None and not phases.is_over(resource):
            place.resource = holding.hold(api, resource)
            if master is None:
                master = _create(place, job)
            else:
                _mend(place, job)
            master = _scale(place, job, master)
        else:
            place.resource = holding.release(api, resource)
    except ApiAway:
        raise
    except ElasticDLError as exc:
        _tell(place, job, master, result, held_up_by=str(exc))
        raise
    _tell(place, job, master, result)
    return master


def _asked(place: Place, master: Document | None) -> JobSpec | None:
    """The job as it runs, else as it is asked for; None if that is no job."""
    running = _running(place) if master else None
    if running is not None:
        why = changes.unfollowed(running, place.resource)
        place.conditions += [phases.accepted(), phases.unfollowed(why) if why else phases.followed()]
        return running
    try:
        job = job_of(place.resource)
    except SpecError as exc:
        place.conditions.append(phases.refused(str(exc)))
        return None
    place.conditions += [phases.accepted(), phases.followed()]
    return job


def _running(place: Place) -> JobSpec | None:
    found = place.find(kinds.CONFIG_MAP, f"{place.name}-spec")
    return JobSpec.model_validate(json.loads(found["data"][manifest.SPEC_KEY])) if found else None


def _result(place: Place, master: Document | None) -> Document | None:
    """How the job ended, if its master gave its pod back because of that. It writes first, and is read last."""
    if master is None or master["spec"]["replicas"]:
        return None
    held = place.api.get(kinds.CONFIG_MAP, last_word.status_name(place.name), place.namespace)
    return last_word.result_of(held, master["metadata"]["uid"])


def _create(place: Place, job: JobSpec) -> Document:
    """Belongings first, the master last: a master that is there has had all it needs."""
    for document in manifest.belongings(job, certificates.make(job), place.owner):
        _create_one(place, document)
    # An operator that ended half way may have left a spec behind: the master belongs to that one.
    begun = _running(place) or job
    document = manifest.master_set(begun, place.owner)
    document["spec"]["replicas"] = place.replicas
    created = _create_one(place, document)
    said = f"Created the master of the job: StatefulSet {document['metadata']['name']}"
    place.say(place.resource, "Normal", "Created", said)
    return created


def _mend(place: Place, job: JobSpec) -> None:
    """Make again what somebody deleted; except secrets, which those that run have already read."""
    for document in _missing(place, job, certificates.JobSecrets("")):
        name = f"{document['kind']} {document['metadata']['name']}"
        if document["kind"] == kinds.SECRET.kind:
            why = f"{name} is gone: no pod can join the job any more. Delete the job and create it anew."
            place.conditions.append(phases.unfollowed(why))
        else:
            _create_one(place, document)
            if document["metadata"]["name"] == naming.spec_name(job):
                # It owned the workers and ps. The next master gives those to come to the new one.
                place.api.delete(kinds.POD, f"{place.master_name}-0", place.namespace)
            place.say(place.resource, "Warning", "Mended", f"{name} was gone and is made again")


def _missing(place: Place, job: JobSpec, secrets: certificates.JobSecrets) -> list[Document]:
    documents = manifest.belongings(job, secrets, place.owner)
    return [one for one in documents if place.find(kinds.of(one), one["metadata"]["name"]) is None]


def _create_one(place: Place, document: Document) -> Document:
    try:
        return place.api.create(_held(document))
    except AlreadyThere as exc:
        found = place.find(kinds.of(document), document["metadata"]["name"])
        if found is None:
            raise Waiting(f"{document['kind']} {document['metadata']['name']} came and went") from exc
        return found


def _held(document: Document) -> Document:
    """`kubectl delete --cascade=foreground` waits for it."""
    metadata = document["metadata"]
    owners = [owner | {"blockOwnerDeletion": True} for owner in metadata["ownerReferences"]]
    return {**document, "metadata": {**metadata, "ownerReferences": owners}}


def _scale(place: Place, job: JobSpec, master: Document) -> Document:
    wanted = place.replicas
    if master["spec"]["replicas"] != wanted:
        name = master["metadata"]["name"]
        # By the version seen: a master that ends this moment must not be started again.
        change = {
            "metadata": {"resourceVersion": master["metadata"]["resourceVersion"]},
            "spec": {"replicas": wanted},
        }
        try:
            master = place.api.patch(kinds.STATEFUL_SET, name, change, place.namespace)
        except Conflict as exc:
            raise Ending("the master changed meanwhile") from exc
        reason, words = ("Resumed", "it goes on") if wanted else ("Suspended", "its pods are given back")
        place.say(place.resource, "Normal", reason, f"spec.suspend is {not wanted}: {words}")
    if not wanted:
        _give_back(place, job)
    return master


def _give_back(place: Place, job: JobSpec) -> None:
    """Pods of workers and ps are the master's to launch: they go when it is gone, or it would replace them."""
    if place.api.list(kinds.POD, place.namespace, naming.selector(job, "master"))[0]:
        raise Ending("the pod of the master is still ending")
    for role in ("worker", "ps"):
        for pod in place.api.list(kinds.POD, place.namespace, naming.selector(job, role))[0]:
            metadata = pod["metadata"]
            if "deletionTimestamp" not in metadata:
                place.api.delete(kinds.POD, metadata["name"], place.namespace, uid=metadata["uid"])


def _tell(
    place: Place, job: JobSpec | None, master: Document | None, result: Document | None, held_up_by: str = ""
) -> None:
    """Write the status, if it changes; warn of what was not said before."""
    resource = place.resource
    while True:
        change = phases.change(resource, job, master, place.conditions, _now(), held_up_by, result)
        if not change:
            return
        _warn(place, resource)
        version = {"resourceVersion": resource["metadata"]["resourceVersion"]}
        patch = {"metadata": version, "status": change}
        try:
            place.api.patch(kinds.ELASTIC_JOB, place.name, patch, place.namespace, "status")
            return
        except Conflict:  # the master wrote meanwhile
            found = place.api.get(kinds.ELASTIC_JOB, place.name, place.namespace)
            if found is None or found["metadata"]["uid"] != resource["metadata"]["uid"]:
                return
            resource = found


def _warn(place: Place, resource: Mapping[str, Any]) -> None:
    known = {one["message"] for one in (resource.get("status") or {}).get("conditions", [])}
    for one in place.conditions:
        if not one.is_true and one.message not in known:
            place.say(place.resource, "Warning", one.reason, one.message)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
