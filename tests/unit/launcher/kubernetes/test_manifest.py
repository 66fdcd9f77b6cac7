"""Every object of a job, built from its spec."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.launcher.kubernetes import manifest
from elasticdl.launcher.kubernetes.access import MASTER_RULES, OWN_SET_RULES
from elasticdl.launcher.kubernetes.job_secrets import JobSecrets
from elasticdl.launcher.kubernetes.manifest import Owner
from elasticdl.spec import JobSpec, load
from elasticdl.spec.cluster import MAX_NAME_LENGTH, parse_quantity
from tests.unit.launcher.jobs import (
    ALL,
    DESCRIPTION,
    ELASTIC_JOB,
    GOLDEN,
    MASTER_SET,
    SECRETS,
    SMALL,
    container,
    job,
    pod_spec,
    worker,
)

SWITCH = "ELASTICDL_WRITE_GOLDEN"
FOLDER = Path(__file__).parent / "golden"


class Dumper(yaml.SafeDumper):
    """Text of several lines is written as such."""


Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def all_of(spec: JobSpec, owner: Owner = MASTER_SET) -> list[dict[str, Any]]:
    pods = [manifest.replica_pod(spec, f"{role}-12345", role, owner, memory_raises=3) for role in ("worker", "ps")]
    return [manifest.master_stateful_set(spec, owner), *manifest.job_objects(spec, SECRETS, owner), *pods]


@pytest.mark.parametrize("name", GOLDEN)
def test_the_objects_equal_the_recorded_ones(name: str) -> None:
    path = FOLDER / f"{name}.yaml"
    text = yaml.dump_all(GOLDEN[name](), Dumper=Dumper, sort_keys=False, width=120)
    if os.environ.get(SWITCH):
        path.write_text(text)

    assert text == path.read_text(), f"if the change is meant, run this test with {SWITCH}=1 and read the difference"


# ---- any job

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
quantities = st.from_regex(r"[1-9][0-9]{0,3}(|m|k|M|G|Ki|Mi|Gi)", fullmatch=True)
devices = st.sampled_from(["gpu", "example.com/slot"])
requests = st.builds(
    lambda plain, device: plain | device,
    st.dictionaries(st.sampled_from(["cpu", "memory", "ephemeral-storage"]), quantities),
    st.dictionaries(devices, st.integers(1, 8).map(str)),
)


@st.composite
def roles(draw: st.DrawFn, *, shares: bool = False) -> dict[str, Any]:
    requested = draw(requests)
    plain = {name: quantity for name, quantity in requested.items() if "/" not in name and name != "gpu"}
    limited = draw(st.sets(st.sampled_from(sorted(plain)))) if plain else set()
    priority = st.sampled_from(["", "high", "low", *(["0", "0.25", "1"] if shares else [])]) | names.map(
        "class-{}".format
    )
    return {"requests": requested, "limits": {name: plain[name] for name in limited}, "priority": draw(priority)}


clusters = st.fixed_dictionaries(
    {"image": st.just("elasticdl:ci"), "namespace": names},
    optional={
        "image_pull_secrets": st.lists(names, max_size=2),
        "service_account": names,
        "master": roles(),
        "worker": roles(shares=True),
        "ps": roles(),
        "max_memory": quantities,
        "volumes": st.lists(st.sampled_from(["a", "b"]), max_size=3).map(
            lambda claims: [{"claim_name": claim, "mount_path": f"/v{i}"} for i, claim in enumerate(claims)]
        ),
        "journal_claim": names,
        "env": st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), texts, max_size=3),
        "env_from_secrets": st.lists(names, max_size=2),
        "spread": st.sampled_from(["none", "nodes", "zones"]),
        "queue": names,
        "is_root": st.booleans(),
        "network_policy": st.booleans(),
    },
)
jobs = st.builds(
    lambda name, cluster: load.resolve_job(load.merge_documents(SMALL, {"name": name, "cluster": cluster})),
    st.from_regex(rf"[a-z0-9]([-a-z0-9]{{0,{MAX_NAME_LENGTH - 2}}}[a-z0-9])?", fullmatch=True),
    clusters,
)
LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"


def each(document: Any, key: str) -> Iterator[Any]:
    """Every value under `key`, at any depth."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == key:
                yield value
            yield from each(value, key)
    elif isinstance(document, list):
        for item in document:
            yield from each(item, key)


@given(jobs)
def test_names_and_quantities_of_any_job_are_valid_in_kubernetes(spec: JobSpec) -> None:
    for document in all_of(spec):
        metadata = document["metadata"]
        assert re.fullmatch(LABEL, metadata["name"]), metadata["name"]
        assert all(len(value) <= 63 for labels in each(document, "labels") for value in labels.values())
        for resources in each(document, "resources"):
            if isinstance(resources, dict):
                requested, limits = resources["requests"], resources["limits"]
                assert all(parse_quantity(quantity) >= 0 for quantity in (*requested.values(), *limits.values()))
                assert all(
                    parse_quantity(requested[name]) <= parse_quantity(limits[name])
                    for name in requested
                    if name in limits
                )
        if document["kind"] in ("StatefulSet", "Pod"):
            volumes = [volume["name"] for volume in pod_spec(document)["volumes"]]
            assert len(volumes) == len(set(volumes))
            assert all(re.fullmatch(LABEL, name) for name in volumes)
            assert {mount["name"] for mount in container(document)["volumeMounts"]} == set(volumes)
            variables = [variable["name"] for variable in container(document)["env"]]
            assert len(variables) == len(set(variables))


@given(jobs)
def test_the_objects_are_plain_json_and_share_no_parts(spec: JobSpec) -> None:
    first = all_of(spec)
    text = json.dumps(first)
    for document in all_of(spec):
        document["metadata"].clear()
        document.pop("spec", {}).clear()

    assert json.dumps(all_of(spec)) == text == json.dumps(first)


# ---- owners, accounts and rights


@pytest.mark.parametrize("settings", [SMALL, ALL], ids=["small", "all"])
def test_everything_belongs_to_its_owner_and_carries_the_label_of_the_job(settings: dict[str, Any]) -> None:
    spec = job(settings)

    for document in all_of(spec, ELASTIC_JOB):
        metadata = document["metadata"]
        assert metadata["labels"]["elasticdl.org/job"] == spec.name
        assert [owner["uid"] for owner in metadata["ownerReferences"]] == [ELASTIC_JOB.uid]


def test_pods_are_controlled_by_their_owner_and_may_be_evicted() -> None:
    """A drain without force and autoscalers require that."""
    metadata = manifest.replica_pod(job(SMALL), "ps-0", "ps", DESCRIPTION)["metadata"]

    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "digits-spec",
            "uid": DESCRIPTION.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]
    assert metadata["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "true"


def test_pods_are_found_by_role_and_replica() -> None:
    spec = job(SMALL)
    labels = worker(spec)["metadata"]["labels"]

    assert manifest.label_selector(spec) == "elasticdl.org/job=digits"
    assert manifest.label_selector(spec, "worker") == "elasticdl.org/job=digits,elasticdl.org/role=worker"
    assert (labels["elasticdl.org/role"], labels["elasticdl.org/replica"]) == ("worker", "worker-0")
    assert labels == manifest.object_labels(spec, "worker", "worker-0")
    template = manifest.master_stateful_set(spec, None)["spec"]["template"]["metadata"]
    assert template == {"labels": manifest.object_labels(spec, "master", "master")}


def test_environment_variables_of_the_user_win_over_settings_but_not_over_the_pods_identity() -> None:
    spec = job(SMALL, env={"A": "theirs", "ELASTICDL_REPLICA": "other", "ELASTICDL_POD_IP": "1.2.3.4"})
    variables = container(worker(spec, environ={"A": "setting", "B": "setting"}))["env"]
    values = {variable["name"]: variable.get("value") for variable in variables}

    assert (values["A"], values["B"], values["ELASTICDL_REPLICA"]) == ("theirs", "setting", "worker-0")
    assert values["ELASTICDL_POD_IP"] is None


# ---- rights


def test_secrets_are_only_in_the_secret() -> None:
    secrets = JobSecrets.placeholder("aaa-", tls=True)

    holders = [
        document["kind"]
        for document in manifest.job_objects(job(ALL), secrets, MASTER_SET)
        if "aaa-" in json.dumps(document)
    ]

    assert holders == ["Secret"]


def test_the_master_has_the_rights_it_needs_and_cannot_read_secrets() -> None:
    role = next(
        document for document in manifest.job_objects(job(SMALL), SECRETS, MASTER_SET) if document["kind"] == "Role"
    )
    rights = {(group, resource): verbs for group, resource, verbs in MASTER_RULES}

    assert len(role["rules"]) == len(MASTER_RULES) + len(OWN_SET_RULES)
    own = [rule for rule in role["rules"] if rule["apiGroups"] == ["apps"]]
    assert [(rule["resources"], rule["resourceNames"]) for rule in own] == [
        (["statefulsets"], ["digits-master"]),
        (["statefulsets/scale"], ["digits-master"]),
    ]
    assert "secrets" not in json.dumps(role)
    assert "*" not in json.dumps(role)
    assert rights["", "pods"] == ("create", "get", "list", "watch", "delete")


def test_only_the_master_gets_a_token_of_the_api() -> None:
    spec = job(SMALL)

    assert pod_spec(manifest.master_stateful_set(spec, None))["automountServiceAccountToken"] is True
    assert pod_spec(worker(spec))["automountServiceAccountToken"] is False
    assert pod_spec(worker(spec))["serviceAccountName"] == "digits-worker"


def test_a_service_account_of_the_user_gets_no_rights_from_us() -> None:
    spec = job(SMALL, service_account="theirs")
    kinds = [document["kind"] for document in manifest.job_objects(spec, SECRETS, MASTER_SET)]

    assert pod_spec(manifest.master_stateful_set(spec, None))["serviceAccountName"] == "theirs"
    assert kinds.count("ServiceAccount") == 1
    assert not {"Role", "RoleBinding"} & set(kinds)


def test_pods_have_no_privileges_and_run_as_root_only_on_request() -> None:
    plain, root = worker(job(SMALL)), worker(job(SMALL, is_root=True))

    assert (pod_spec(plain)["securityContext"]["runAsNonRoot"], pod_spec(plain)["securityContext"]["runAsUser"]) == (
        True,
        10001,
    )
    assert not {"runAsNonRoot", "runAsUser"} & set(pod_spec(root)["securityContext"])
    for document in (plain, root):
        context = container(document)["securityContext"]
        assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
        assert context["capabilities"] == {"drop": ["ALL"]}
        places = {mount["mountPath"] for mount in container(document)["volumeMounts"]}
        assert {"/tmp", "/var/lib/elasticdl"} <= places


def test_no_network_policy_is_created_if_it_is_turned_off() -> None:
    kinds = [
        document["kind"] for document in manifest.job_objects(job(SMALL, network_policy=False), SECRETS, MASTER_SET)
    ]

    assert "NetworkPolicy" not in kinds


# ---- the master's set


def test_the_masters_stateful_set_starts_without_a_pod_and_restarts_its_master() -> None:
    master = manifest.master_stateful_set(job(SMALL), None)["spec"]

    assert (master["replicas"], master["serviceName"]) == (0, "digits-master")
    assert master["selector"]["matchLabels"].items() <= master["template"]["metadata"]["labels"].items()
    assert master["template"]["spec"]["restartPolicy"] == "Always"
    assert pod_spec(worker(job(SMALL)))["restartPolicy"] == "Never"


def test_only_the_master_is_probed() -> None:
    spec = job(SMALL)

    assert {"readinessProbe", "livenessProbe", "startupProbe"} <= set(
        container(manifest.master_stateful_set(spec, None))
    )
    assert not {"readinessProbe", "livenessProbe", "startupProbe"} & set(container(worker(spec)))


def test_the_grace_period_is_slightly_longer_than_that_of_the_job() -> None:
    assert pod_spec(manifest.master_stateful_set(job(ALL), None))["terminationGracePeriodSeconds"] == 18
