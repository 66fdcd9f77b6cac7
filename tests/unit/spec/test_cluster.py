"""What a job asks of a cluster: quantities, resources, priorities, volumes, names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from elasticdl.errors import SpecError
from elasticdl.spec import ClusterSpec, RoleSpec, VolumeSpec, load
from elasticdl.spec.cluster import MAX_NAME_LENGTH, parse_quantity

GOOD = {"name": "digits", "model": {"definition": "digits.forward"}, "cluster": {"image": "elasticdl:ci"}}


def complaint(cluster: dict[str, Any], **other: Any) -> str:
    with pytest.raises(SpecError) as caught:
        load.resolve_job(load.merge_documents(GOOD, {"cluster": cluster} | other))
    return str(caught.value)


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        ("4", 4.0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("2.", 2.0),
        ("500m", 0.5),
        ("4k", 4e3),
        ("4M", 4e6),
        ("4G", 4e9),
        ("4T", 4e12),
        ("4P", 4e15),
        ("4E", 4e18),
        ("4Ki", 4 * 2**10),
        ("4Mi", 4 * 2**20),
        ("1.5Gi", 1.5 * 2**30),
        ("4Ti", 4 * 2**40),
        ("4Pi", 4 * 2**50),
        ("4Ei", 4 * 2**60),
        ("4e3", 4e3),
        ("4E3", 4e3),
        ("4e-3", 4e-3),
        ("4E+3", 4e3),
    ],
)
def test_a_quantity_is_read_with_every_suffix(quantity: str, expected: float) -> None:
    assert parse_quantity(quantity) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("quantity", ["", "4K", "-1", "4 Gi", "Gi", "much", "4e", "0x4", "4Gi\n", "1,5"])
def test_what_is_no_quantity_is_refused(quantity: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        parse_quantity(quantity)


@pytest.mark.parametrize(
    ("quantity", "fix"), [("4GB", "4Gi or 4G"), ("500MB", "500Mi or 500M"), ("8KB", "8Ki or 8k"), ("1.5GiB", "1.5Gi")]
)
def test_bytes_written_as_elsewhere_are_refused_with_the_fix(quantity: str, fix: str) -> None:
    message = complaint({"worker": {"requests": {"memory": quantity}}})

    assert message.startswith("cluster.worker.requests.memory: ")
    assert f"{quantity!r} is not a Kubernetes quantity" in message
    assert fix in message


@given(st.integers(0, 10**6), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti"]))
def test_more_of_a_unit_is_more(number: int, unit: str) -> None:
    assert parse_quantity(f"{number}{unit}") < parse_quantity(f"{number + 1}{unit}")


def test_a_gpu_is_one_of_nvidia_and_devices_of_others_have_their_vendor() -> None:
    role = RoleSpec(requests={"gpu": "1", "amd.com/gpu": "2", "cpu": "1", "ephemeral-storage": "1Gi"})

    assert role.requests == {"nvidia.com/gpu": "1", "amd.com/gpu": "2", "cpu": "1", "ephemeral-storage": "1Gi"}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"disk": "1Gi"}, "'disk' is not a resource; write a device as VENDOR/disk"),
        ({"a b": "1"}, "'a b' is not a resource; use cpu, memory"),
        ({"-x.com/y": "1"}, "'-x.com/y' is not a resource"),
        ({"cpu": "1", "memory": "lots"}, "'lots' is not a Kubernetes quantity"),
    ],
)
def test_a_resource_that_is_none_is_refused(resources: dict[str, str], expected: str) -> None:
    assert expected in complaint({"ps": {"requests": resources}})


def test_a_limit_below_its_request_is_refused() -> None:
    message = complaint({"master": {"requests": {"memory": "4Gi"}, "limits": {"memory": "4G"}}})

    assert message == "cluster.master: memory: the limit 4G is below the request 4Gi"
    assert RoleSpec(requests={"memory": "4G"}, limits={"memory": "4Gi", "cpu": "2"}).limits["cpu"] == "2"


def test_a_role_of_which_only_a_priority_or_a_limit_is_said_asks_for_what_it_would_have() -> None:
    cluster = ClusterSpec.model_validate(
        {"image": "x", "worker": {"priority": "high"}, "ps": {"limits": {"memory": "1Gi"}}, "master": {"requests": {}}}
    )

    assert cluster.worker.requests == ClusterSpec(image="x").worker.requests == {"cpu": "1", "memory": "2Gi"}
    assert cluster.ps.requests == {"cpu": "1", "memory": "1Gi"}
    assert cluster.master.requests == {}
    assert "is not a Kubernetes quantity" in complaint({"ps": {"limits": {"memory": "1GB"}}})
    assert "cluster.ps.limits" in complaint({"ps": {"limits": "much"}})


def test_a_device_is_limited_to_what_is_asked_for() -> None:
    assert "gpu: the limit 2 differs from the request 1" in complaint(
        {"ps": {"requests": {"gpu": "1"}, "limits": {"gpu": "2"}}}
    )


@pytest.mark.parametrize(("priority", "share"), [("0.5", 0.5), ("1", 1.0), ("0", 0.0), ("high", None), ("", None)])
def test_a_priority_is_a_word_or_a_share(priority: str, share: float | None) -> None:
    assert RoleSpec(priority=priority).high_share == share


@pytest.mark.parametrize("priority", ["1.5", "-0.1", "nan", "inf"])
def test_a_share_of_the_workers_lies_between_none_and_all(priority: str) -> None:
    assert "a share from 0 to 1" in complaint({"worker": {"priority": priority}})


@pytest.mark.parametrize("role", ["master", "ps"])
def test_only_workers_have_a_share(role: str) -> None:
    message = complaint({role: {"priority": "0.5"}})

    assert message == f"cluster.{role}: priority: 0.5 is a share, which only workers have; use high or low"


@pytest.mark.parametrize("priority", ["High", "my class", "-a"])
def test_the_name_of_a_priority_class_is_one(priority: str) -> None:
    assert "the name of a PriorityClass" in complaint({"worker": {"priority": priority}})


@pytest.mark.parametrize("volume", [{}, {"claim_name": "c", "host_path": "/h"}])
def test_a_volume_is_either_a_claim_or_a_directory(volume: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="either claim_name=… or host_path=…"):
        VolumeSpec(mount_path="/data", **volume)  # type: ignore[arg-type]


def test_a_volume_is_mounted_at_an_absolute_path() -> None:
    assert "cluster.volumes.0.mount_path" in complaint({"volumes": [{"claim_name": "c", "mount_path": "data"}]})


def test_two_volumes_at_one_place_are_refused() -> None:
    same = [{"claim_name": "a", "mount_path": "/data"}, {"claim_name": "b", "mount_path": "/data/"}]

    assert "/data: two volumes are mounted here" in complaint({"volumes": same})


@pytest.mark.parametrize("place", ["/tmp", "/var/lib/elasticdl", "/etc/elasticdl/secret", "/etc/elasticdl"])
def test_places_of_the_job_itself_are_refused(place: str) -> None:
    assert "is used by the job itself" in complaint({"volumes": [{"claim_name": "a", "mount_path": place}]})


def test_a_name_that_leaves_no_room_for_its_pods_is_refused_on_a_cluster_only() -> None:
    name = "a" * (MAX_NAME_LENGTH + 1)

    assert f"use at most {MAX_NAME_LENGTH} letters on Kubernetes" in complaint({}, name=name)
    assert load.resolve_job({"name": name, "model": {"definition": "m.f"}}).name == name
    assert len(load.resolve_job(load.merge_documents(GOOD, {"name": name[1:]})).name) == MAX_NAME_LENGTH


@pytest.mark.parametrize("overrides", [{"pods": {}}, {"pod": []}, {"worker_pod": "x"}])
def test_only_known_objects_are_adjusted(overrides: dict[str, Any]) -> None:
    assert "expected a mapping under one of pod, master_pod, worker_pod, ps_pod, service" in complaint(
        {"overrides": overrides}
    )


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({"image": ""}, "cluster.image (--image_name)"),
        ({"env": {"A-B": "1"}}, "'A-B' is not a valid name of an environment variable"),
        ({"namespace": "My_Space"}, "cluster.namespace (--namespace)"),
        ({"image_pull_policy": "always"}, "'Always', 'IfNotPresent' or 'Never'"),
        ({"spread": "racks"}, "cluster.spread (--spread)"),
        ({"max_memory": "16GB"}, "16Gi or 16G"),
        ({"imgae": "x"}, "did you mean 'image'?"),
    ],
)
def test_what_is_wrong_is_named_with_its_option(cluster: dict[str, Any], expected: str) -> None:
    assert expected in complaint(cluster)


def test_an_image_is_needed_for_a_job_of_pods() -> None:
    with pytest.raises(SpecError, match=r"cluster\.image \(--image_name\): is missing"):
        load.resolve_job({"name": "a", "model": {"definition": "m.f"}, "cluster": {"namespace": "b"}})


def test_workers_compute_with_the_cores_they_ask_for() -> None:
    def threads(cpu: str) -> int:
        return load.resolve_job(
            load.merge_documents(GOOD, {"cluster": {"worker": {"requests": {"cpu": cpu}}}})
        ).workers.threads

    assert [threads(cpu) for cpu in ("500m", "1", "3500m", "8")] == [1, 1, 3, 8]


def test_every_default_of_a_cluster_is_valid_when_written_down() -> None:
    cluster = ClusterSpec(image="x")

    assert ClusterSpec.model_validate_json(cluster.model_dump_json()) == cluster


def test_a_quantity_beyond_all_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="more than any node has"):
        parse_quantity("9" * 400)
