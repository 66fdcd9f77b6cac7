"""The settings of a job on a Kubernetes cluster: image, resources, priorities, volumes, nodes."""

from __future__ import annotations

import math
import posixpath
import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity
_QUANTITY = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(m|[kMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")
_RESOURCE = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALE = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SCALE |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60}

# A label has at most 63 letters. The StatefulSet of the master is called NAME-master, and labels its pod with that
# name and ten letters for its revision; with a longer name the pod could not be created.
MAX_NAME_LENGTH = 63 - len("-master-0123456789")


def parse_quantity(quantity: str) -> float:
    """Parses a Kubernetes quantity: 0.5 for 500m, 2**30 for 1Gi."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise ValueError(
            f"{quantity!r} is not a Kubernetes quantity; write 500m, 4, 4G or 4Gi{_quantity_hint(quantity)}"
        )
    number, unit = match[1], match[2] or ""
    is_exponent = unit[:1] in ("e", "E") and len(unit) > 1 and unit != "Ei"
    value = float(number + unit) if is_exponent else float(number) * _SCALE[unit]
    if math.isinf(value):
        raise ValueError(f"{quantity[:20]!r}… is more than any node has")
    return value


def _quantity_hint(quantity: str) -> str:
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])i?[bB]", quantity):
        return f": {match[1]}{match[2]}i or {match[1]}{match[2].replace('K', 'k')}"
    return ""


def _check_quantity(text: str) -> str:
    parse_quantity(text)
    return text


Quantity = Annotated[str, AfterValidator(_check_quantity)]
Name = Annotated[str, Field(pattern=f"^$|^{_NAME}$", max_length=253)]
Label = Annotated[str, Field(pattern=r"^$|^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]

# Used by the pods themselves, so volumes cannot be mounted there.
RESERVED_MOUNT_PATHS = ("/tmp", "/var/lib/elasticdl", "/etc/elasticdl", "/etc/elasticdl/spec", "/etc/elasticdl/secret")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _check_resources(quantities: dict[str, str]) -> dict[str, str]:
    renamed = {"nvidia.com/gpu" if name == "gpu" else name: quantity for name, quantity in quantities.items()}
    for name in renamed:
        if not _RESOURCE.fullmatch(name):
            raise ValueError(f"{name!r} is not a resource; use cpu, memory, ephemeral-storage, gpu or VENDOR/DEVICE")
        if "/" not in name and name not in ("cpu", "memory", "ephemeral-storage"):
            raise ValueError(f"{name!r} is not a resource; write a device as VENDOR/{name}, such as nvidia.com/gpu")
    return renamed


Resources = Annotated[dict[str, Quantity], AfterValidator(_check_resources)]


class RoleSpec(_Part):
    """Resources and priority of each pod of a role."""

    requests: Resources = {}
    limits: Resources = {}  # by default memory, storage and devices as requested, and cpu without limit
    priority: str = ""  # high, low or a PriorityClass; for workers also the share with high priority, e.g. 0.5

    @property
    def high_share(self) -> float | None:
        """The share of workers with high priority; None if it is not set."""
        try:
            return float(self.priority)
        except ValueError:
            return None

    @field_validator("priority")
    @classmethod
    def _priority_is_one(cls, priority: str) -> str:
        try:
            is_good = 0.0 <= float(priority) <= 1.0
        except ValueError:
            is_good = priority == "" or re.fullmatch(_NAME, priority) is not None
        if not is_good:
            raise ValueError("expected high, low, the name of a PriorityClass, or (workers only) a share from 0 to 1")
        return priority

    @model_validator(mode="after")
    def _limits_hold(self) -> Self:
        for name, limit in self.limits.items():
            if name in self.requests and parse_quantity(limit) < parse_quantity(self.requests[name]):
                raise ValueError(f"{name}: the limit {limit} is below the request {self.requests[name]}")
            if "/" in name and name in self.requests and parse_quantity(limit) != parse_quantity(self.requests[name]):
                raise ValueError(f"{name}: the limit {limit} differs from the request {self.requests[name]}; remove it")
        return self


def _cap_requests(requests: dict[str, str], limits: Any) -> dict[str, str]:
    """Caps requests at their limits. Malformed limits are refused elsewhere."""
    limits_by_name = limits if isinstance(limits, dict) else {}
    valid_limits = {
        name: limit for name, limit in limits_by_name.items() if isinstance(limit, str) and _QUANTITY.fullmatch(limit)
    }
    return {
        name: min(request, valid_limits.get(name, request), key=parse_quantity) for name, request in requests.items()
    }


class VolumeSpec(_Part):
    """A volume mounted into all pods of a job: a PersistentVolumeClaim, or a directory of the node."""

    mount_path: Annotated[str, Field(pattern="^/")]
    claim_name: Name = ""
    host_path: str = ""
    sub_path: str = ""
    read_only: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.claim_name) == bool(self.host_path):
            raise ValueError("a volume has either claim_name=… or host_path=…, and mount_path=…")
        return self


# The default requests of a pod.
_REQUESTS = {
    "master": {"cpu": "500m", "memory": "512Mi"},
    "worker": {"cpu": "1", "memory": "2Gi"},
    "ps": {"cpu": "1", "memory": "2Gi"},
}


class ClusterSpec(_Part):
    """A job of pods. All objects that it refers to are in `namespace`."""

    image: Annotated[str, Field(min_length=1)]
    namespace: Label = ""  # "": that of the context, filled in when the job is submitted
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: tuple[Name, ...] = ()
    service_account: Name = ""  # of the master; "": one created for the job, with the rights it needs
    master: RoleSpec = RoleSpec(requests=_REQUESTS["master"])
    worker: RoleSpec = RoleSpec(requests=_REQUESTS["worker"])
    ps: RoleSpec = RoleSpec(requests=_REQUESTS["ps"])
    max_memory: Quantity = "0"  # a pod that ran out of memory gets half as much again, up to this; 0: up to 3 times
    volumes: tuple[VolumeSpec, ...] = ()
    journal_claim: Name = ""  # where the master keeps its journal; "": in ConfigMaps
    env: dict[str, str] = {}
    env_from_secrets: tuple[Name, ...] = ()  # Secrets whose keys become environment variables
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    spread: Literal["none", "nodes", "zones"] = "nodes"  # pods of a role, if possible
    scheduler: Name = ""  # "": that of the cluster
    queue: Annotated[Name, Field(max_length=63)] = ""  # of Kueue
    is_root: bool = False  # allow root, for images that need it
    network_policy: bool = True
    tls: bool = True
    overrides: dict[str, Any] = {}  # of --cluster_spec: merged into pod, master_pod, worker_pod, ps_pod, service

    @model_validator(mode="before")
    @classmethod
    def _requests_of_roles(cls, fields: Any) -> Any:
        """Keeps the default requests of a role that sets only a priority or a limit, within that limit."""
        if not isinstance(fields, dict):
            return fields
        roles = {
            role: {**fields[role], "requests": _cap_requests(requests, fields[role].get("limits"))}
            for role, requests in _REQUESTS.items()
            if isinstance(fields.get(role), dict) and "requests" not in fields[role]
        }
        return fields | roles

    @field_validator("master", "ps")
    @classmethod
    def _only_workers_share(cls, role: RoleSpec) -> RoleSpec:
        if role.high_share is not None:
            raise ValueError(f"priority: {role.priority} is a share, which only workers have; use high or low")
        return role

    @field_validator("volumes")
    @classmethod
    def _mount_paths_are_free(cls, volumes: tuple[VolumeSpec, ...]) -> tuple[VolumeSpec, ...]:
        mount_paths = [posixpath.normpath(volume.mount_path) for volume in volumes]
        for index, mount_path in enumerate(mount_paths):
            if mount_path in RESERVED_MOUNT_PATHS or mount_path == "/":
                raise ValueError(f"{mount_path} is used by the job itself; mount the volume elsewhere")
            if mount_path in mount_paths[:index]:
                raise ValueError(f"{mount_path}: two volumes are mounted here; set a different mount_path for each")
        return volumes

    @field_validator("env")
    @classmethod
    def _names_of_variables(cls, env: dict[str, str]) -> dict[str, str]:
        for name in env:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} is not a valid name of an environment variable")
        return env

    @field_validator("overrides")
    @classmethod
    def _known_objects(cls, overrides: dict[str, Any]) -> dict[str, Any]:
        object_names = ("pod", "master_pod", "worker_pod", "ps_pod", "service")
        for name, change in overrides.items():
            if name not in object_names or not isinstance(change, dict):
                raise ValueError(f"{name!r}: expected a mapping under one of {', '.join(object_names)}")
        return overrides
