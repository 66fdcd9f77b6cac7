"""Options of a job on Kubernetes: what they set is `elasticdl.spec.cluster`."""

from __future__ import annotations

from elasticdl.spec.option import ALL, TRAIN, Form, Option

SECTION = "Kubernetes"

CLUSTER_OPTIONS: tuple[Option, ...] = (
    Option("image_name", "cluster.image", SECTION, "Image of all pods; with it the job runs on Kubernetes.", ALL),
    Option("namespace", "cluster.namespace", SECTION, "Namespace. Default: that of the context.", ALL),
    *(
        Option(
            f"{role}_resource_{kind}",
            f"cluster.{role}.{kind}s",
            SECTION,
            f"What each {role} pod {verb}.",
            ALL,
            Form.PAIRS,
            '"cpu=1,memory=4Gi"',
        )
        for role in ("master", "worker", "ps")
        for kind, verb in (("request", "asks for"), ("limit", "gets at most"))
    ),
    Option("master_pod_priority", "cluster.master.priority", SECTION, "high, low or a PriorityClass.", ALL),
    Option(
        "worker_pod_priority",
        "cluster.worker.priority",
        SECTION,
        "high, low, a PriorityClass, or the share of workers that is high, e.g. 0.5.",
        ALL,
    ),
    Option("ps_pod_priority", "cluster.ps.priority", SECTION, "high, low or a PriorityClass.", (TRAIN,)),
    Option(
        "volume",
        "cluster.volumes",
        SECTION,
        "Mounted into all pods: claims, or directories of the nodes.",
        ALL,
        Form.VOLUMES,
        '"claim_name=c,mount_path=/data"',
    ),
    Option("envs", "cluster.environ", SECTION, "Variables of all pods.", ALL, Form.PAIRS, '"A=1,B=2"'),
    Option(
        "env_secrets",
        "cluster.environ_secrets",
        SECTION,
        "Secrets whose keys become variables.",
        ALL,
        Form.LIST,
        "A,B",
    ),
    Option("image_pull_policy", "cluster.pull_policy", SECTION, "Always, IfNotPresent (default) or Never.", ALL),
    Option("image_pull_secrets", "cluster.pull_secrets", SECTION, "For a private registry.", ALL, Form.LIST, "A,B"),
    Option("service_account", "cluster.service_account", SECTION, "Of the master. Default: one of its own.", ALL),
    Option("node_selector", "cluster.node_selector", SECTION, "Labels of nodes.", ALL, Form.PAIRS, '"A=1,B=2"'),
    Option("spread", "cluster.spread", SECTION, "Spread pods over nodes (default), zones, or none.", ALL),
    Option("scheduler_name", "cluster.scheduler", SECTION, "Scheduler of the pods.", ALL),
    Option(
        "queue",
        "cluster.queue",
        "Job",
        "Queue of Kueue. On this machine: wait for `elasticdl scheduler` to give the job workers.",
        ALL,
        Form.OPTIONAL,
        "[NAME]",
    ),
    Option("state_claim", "cluster.state_claim", SECTION, "Claim for the master's journal.", ALL),
    Option(
        "memory_most",
        "cluster.memory_most",
        SECTION,
        "Most memory of a pod that ran out of it.",
        ALL,
        metavar="16Gi",
    ),
    Option(
        "cluster_spec",
        "cluster.adjust",
        SECTION,
        "YAML merged into pods and services: pod, master_pod, worker_pod, ps_pod, service.",
        ALL,
        Form.FILE,
        "FILE",
    ),
)
