"""The options of jobs on Kubernetes: image, pods, volumes and scheduling."""

from __future__ import annotations

from elasticdl.spec.option import ALL_COMMANDS, TRAIN, Option, OptionSyntax

_KUBERNETES = "Kubernetes"

CLUSTER_OPTIONS: tuple[Option, ...] = (
    Option(
        "image_name",
        "cluster.image",
        _KUBERNETES,
        "Image of all pods. If set, the job runs on Kubernetes.",
        ALL_COMMANDS,
    ),
    Option("namespace", "cluster.namespace", _KUBERNETES, "Namespace. Default: that of the context.", ALL_COMMANDS),
    *(
        Option(
            f"{role}_resource_{kind}",
            f"cluster.{role}.{kind}s",
            _KUBERNETES,
            f"Resources that each {role} pod {verb}.",
            ALL_COMMANDS,
            OptionSyntax.PAIRS,
            '"cpu=1,memory=4Gi"',
        )
        for role in ("master", "worker", "ps")
        for kind, verb in (("request", "requests"), ("limit", "may use at most"))
    ),
    Option(
        "master_pod_priority", "cluster.master.priority", _KUBERNETES, "high, low or a PriorityClass.", ALL_COMMANDS
    ),
    Option(
        "worker_pod_priority",
        "cluster.worker.priority",
        _KUBERNETES,
        "high, low, a PriorityClass, or the share of workers with high priority, e.g. 0.5.",
        ALL_COMMANDS,
    ),
    Option("ps_pod_priority", "cluster.ps.priority", _KUBERNETES, "high, low or a PriorityClass.", (TRAIN,)),
    Option(
        "volume",
        "cluster.volumes",
        _KUBERNETES,
        "Volumes of all pods: claims, or directories of the nodes.",
        ALL_COMMANDS,
        OptionSyntax.VOLUMES,
        '"claim_name=c,mount_path=/data"',
    ),
    Option(
        "envs",
        "cluster.env",
        _KUBERNETES,
        "Environment variables of all pods.",
        ALL_COMMANDS,
        OptionSyntax.PAIRS,
        '"A=1,B=2"',
    ),
    Option(
        "env_secrets",
        "cluster.env_from_secrets",
        _KUBERNETES,
        "Secrets whose keys become environment variables.",
        ALL_COMMANDS,
        OptionSyntax.LIST,
        "A,B",
    ),
    Option(
        "image_pull_policy",
        "cluster.image_pull_policy",
        _KUBERNETES,
        "Always, IfNotPresent (default) or Never.",
        ALL_COMMANDS,
    ),
    Option(
        "image_pull_secrets",
        "cluster.image_pull_secrets",
        _KUBERNETES,
        "Secrets for a private registry.",
        ALL_COMMANDS,
        OptionSyntax.LIST,
        "A,B",
    ),
    Option(
        "service_account",
        "cluster.service_account",
        _KUBERNETES,
        "Service account of the master. Default: one that is created for the job.",
        ALL_COMMANDS,
    ),
    Option(
        "node_selector",
        "cluster.node_selector",
        _KUBERNETES,
        "Labels of the nodes that pods may run on.",
        ALL_COMMANDS,
        OptionSyntax.PAIRS,
        '"A=1,B=2"',
    ),
    Option("spread", "cluster.spread", _KUBERNETES, "Spread pods over nodes (default), zones, or none.", ALL_COMMANDS),
    Option("scheduler_name", "cluster.scheduler", _KUBERNETES, "Scheduler of the pods.", ALL_COMMANDS),
    Option(
        "queue",
        "cluster.queue",
        "Job",
        "Wait in a queue: of `elasticdl scheduler` on this machine, or of Kueue on Kubernetes.",
        ALL_COMMANDS,
        OptionSyntax.OPTIONAL,
        "[NAME]",
    ),
    Option(
        "journal_claim",
        "cluster.journal_claim",
        _KUBERNETES,
        "PersistentVolumeClaim for the master's journal.",
        ALL_COMMANDS,
    ),
    Option(
        "max_memory",
        "cluster.max_memory",
        _KUBERNETES,
        "Memory limit up to which a pod that ran out of memory is enlarged.",
        ALL_COMMANDS,
        metavar="16Gi",
    ),
    Option(
        "cluster_spec",
        "cluster.overrides",
        _KUBERNETES,
        "YAML file merged into pods and services; its keys are pod, master_pod, worker_pod, ps_pod and service.",
        ALL_COMMANDS,
        OptionSyntax.FILE,
        "FILE",
    ),
)
