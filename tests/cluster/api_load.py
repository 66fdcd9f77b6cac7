"""Counts the requests to an API server by client, from its own metrics.

It counts requests by FlowSchema, and a FlowSchema may be made for any user: one for the operator, one for all masters
of a namespace. They get the priority level that service accounts have anyway, so counting changes nothing.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.cluster.kube import Kube

OPERATOR, MASTERS, KUBERNETES = "operator", "masters", "Kubernetes"
BEGIN_S = 60.0
_PREFIX = "elasticdl-count-"
_LINE = re.compile(r"(\w+)\{(.*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_ANSWERED = "apiserver_request_total"
_BY_WHOM = "apiserver_flowcontrol_dispatched_requests_total"
_REFUSED = "apiserver_flowcontrol_rejected_requests_total"


class ApiLoad:
    """Requests since the server started; subtract two readings to get those in between."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def by_whom(self) -> Counter[str]:
        """Requests of the operator, of masters and of all others (the control plane, kwok, kubectl)."""
        requests: Counter[str] = Counter()
        for name, labels, value in self._figures():
            if name == _BY_WHOM:
                requests[self._whose(labels)] += value
        return requests

    def refused(self) -> int:
        """Requests that the server rejected because it was overloaded."""
        return sum(value for name, _, value in self._figures() if name == _REFUSED)

    @staticmethod
    def _whose(labels: dict[str, str]) -> str:
        schema = labels["flow_schema"]
        return schema.removeprefix(_PREFIX) if schema.startswith(_PREFIX) else KUBERNETES

    def _figures(self) -> Iterator[tuple[str, dict[str, str], int]]:
        for line in self._kube.kubectl("get", "--raw", "/metrics").splitlines():
            if line.startswith(("apiserver_request_total", "apiserver_flowcontrol_")) and (m := _LINE.match(line)):
                yield m[1], dict(_LABEL.findall(m[2])), int(float(m[3]))


@contextmanager
def count_requests(kube: Kube, operator: str, namespace: str) -> Iterator[ApiLoad]:
    """Applies FlowSchemas for the operator (a user) and all service accounts of `namespace` until the block ends."""
    operator_namespace, _, operator_name = operator.removeprefix("system:serviceaccount:").partition(":")
    subjects = {
        OPERATOR: {
            "kind": "ServiceAccount",
            "serviceAccount": {"name": operator_name, "namespace": operator_namespace},
        },
        MASTERS: {"kind": "Group", "group": {"name": f"system:serviceaccounts:{namespace}"}},
    }
    schemas = [_schema(_PREFIX + role, subject) for role, subject in subjects.items()]
    kube.kubectl("apply", "--filename=-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": schemas}))
    load, deadline = ApiLoad(kube), time.monotonic() + BEGIN_S
    try:
        while not load.by_whom()[OPERATOR]:  # it renews its Lease all the time
            assert time.monotonic() < deadline, f"no request of {operator} was counted within {BEGIN_S:g} s"
            time.sleep(0.5)
        yield load
    finally:
        kube.kubectl("delete", "flowschemas", *(schema["metadata"]["name"] for schema in schemas), "--ignore-not-found")


def _schema(name: str, subject: dict[str, Any]) -> dict[str, Any]:
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    elsewhere = {"verbs": ["*"], "nonResourceURLs": ["*"]}
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": "workload-low"},
            "matchingPrecedence": 500,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{"subjects": [subject], "resourceRules": [everything], "nonResourceRules": [elsewhere]}],
        },
    }
