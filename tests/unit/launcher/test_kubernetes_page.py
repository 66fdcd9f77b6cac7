"""The page about Kubernetes names every option of its section, and its example is one."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from elasticdl.launcher.kubernetes import manifest
from elasticdl.spec.cluster_options import CLUSTER_OPTIONS
from tests.unit.launcher.jobs import MASTER_SET, SMALL, job

PAGE = (Path(__file__).parents[3] / "docs" / "kubernetes.md").read_text()


def test_every_option_of_the_section_is_named() -> None:
    assert [option.flag for option in CLUSTER_OPTIONS if f"`{option.flag}`" not in PAGE] == []


def test_the_example_of_cluster_spec_does_what_the_page_says() -> None:
    text = re.search(r"```yaml\n# cluster.yaml\n(.*?)```", PAGE, re.DOTALL)
    assert text is not None
    pod = manifest.replica_pod(job(SMALL, overrides=yaml.safe_load(text[1])), "worker-0", "worker", MASTER_SET)

    assert (pod["spec"]["runtimeClassName"], pod["spec"]["dnsPolicy"]) == ("nvidia", "Default")
    assert {"shm", "state", "tmp"} <= {volume["name"] for volume in pod["spec"]["volumes"]}
    assert "/dev/shm" in [mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]
