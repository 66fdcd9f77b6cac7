"""Rules in CEL that the API server checks across fields, each with its error message.

They repeat checks of `JobSpec`, so that `kubectl apply` refuses at once what the operator would have to refuse later.
`JobSpec` decides: a resource with a mistake that no rule can express ends in the phase Invalid.
"""

from __future__ import annotations

from typing import Any

from elasticdl.spec.cluster import MAX_NAME_LENGTH

ValidationRule = dict[str, Any]


def _rule(expression: str, message: str) -> ValidationRule:
    return {"rule": expression, "message": message}


_MIN_WORKERS = "(self.min > 0 ? self.min : 1)"
_MAX_WORKERS = f"(self.max > 0 ? self.max : (self.replicas > {_MIN_WORKERS} ? self.replicas : {_MIN_WORKERS}))"
_HAS_PS_COUNT = "(has(self.ps) && has(self.ps.replicas))"
_QUANTITIES = "500m, 4, 4G or 4Gi"

ROOT_RULES: list[ValidationRule] = [
    _rule(
        f"self.metadata.name.size() <= {MAX_NAME_LENGTH}",
        f"metadata.name: use at most {MAX_NAME_LENGTH} characters; labels of pods are made from it",
    ),
    _rule(
        "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name: use a-z, 0-9 and '-', beginning and ending with a letter or digit",
    ),
]

SPEC_RULES: list[ValidationRule] = [
    _rule(
        "self.kind == 'script' || has(self.model)",
        "model: a job that is not of kind script needs model.definition, e.g. mnist.mnist.forward",
    ),
    _rule("self.kind != 'script' || has(self.script)", "script: a job of kind script needs script.path"),
    _rule(
        f"!has(self.strategy) || self.strategy != 'ParameterServerStrategy' || !{_HAS_PS_COUNT} "
        "|| self.ps.replicas >= 1",
        "ps.replicas: ParameterServerStrategy needs at least one ps, or use strategy: AllreduceStrategy",
    ),
    _rule(
        f"!has(self.strategy) || self.strategy != 'AllreduceStrategy' || !{_HAS_PS_COUNT} || self.ps.replicas == 0",
        "ps.replicas: AllreduceStrategy has no ps: omit ps.replicas, or use strategy: ParameterServerStrategy",
    ),
    _rule(
        "!has(self.plan) || self.plan.logical_ranks == 0 || "
        "self.plan.logical_ranks >= (self.workers.max > 0 ? self.workers.max : self.workers.replicas)",
        "plan.logical_ranks: every worker needs a logical rank: use at least workers.max",
    ),
]

WORKERS_RULES: list[ValidationRule] = [
    _rule(f"{_MIN_WORKERS} <= {_MAX_WORKERS}", "min is above max; write them as min <= replicas <= max"),
    _rule(
        f"{_MIN_WORKERS} > {_MAX_WORKERS} || ({_MIN_WORKERS} <= self.replicas && self.replicas <= {_MAX_WORKERS})",
        "replicas is outside min .. max",
    ),
]

PS_RULES: list[ValidationRule] = [
    _rule(
        "self.backups == 0 || !has(self.replicas) || self.replicas != 1",
        "backups: a backup of each slot needs a second ps",
    ),
    _rule("self.grads_to_wait == 1 || self.mode == 'sync'", "grads_to_wait: only the sync mode waits for pushes"),
    _rule(
        "self.pull_every == 1 || self.mode == 'local'",
        "pull_every: only the local mode pulls less often than every step",
    ),
    _rule(
        "self.max_staleness == 0 || self.mode != 'hybrid' || !has(self.replicas) || self.replicas == 0",
        "max_staleness: the hybrid mode cannot compute a single push again; use mode: async",
    ),
]

RESOURCES_RULES: list[ValidationRule] = [
    _rule(
        "self.all(name, type(self[name]) == int || isQuantity(self[name]))",
        f"expected Kubernetes quantities: write {_QUANTITIES}, not 4GB",
    ),
    _rule(
        "self.all(name, name in ['cpu', 'memory', 'ephemeral-storage', 'gpu'] || name.contains('/'))",
        "expected cpu, memory, ephemeral-storage, gpu or VENDOR/DEVICE, such as nvidia.com/gpu",
    ),
]

# Compares each limit with the request of the same name. Another rule reports values that are not quantities.
_LIMITS_RULE = (
    "!has(self.limits) || !has(self.requests) || self.limits.all(name, !(name in self.requests) || "
    "!isQuantity(string(self.limits[name])) || !isQuantity(string(self.requests[name])) || {} "
    "quantity(string(self.limits[name])).compareTo(quantity(string(self.requests[name]))) {} 0)"
)

ROLE_RULES: list[ValidationRule] = [
    _rule(_LIMITS_RULE.format("", ">="), "limits: a limit is below the request of the same name"),
    _rule(
        _LIMITS_RULE.format("!name.contains('/') ||", "=="), "limits: the limit of a device equals its request; omit it"
    ),
]

VOLUME_RULES: list[ValidationRule] = [
    _rule(
        "(has(self.claim_name) && self.claim_name != '') != (has(self.host_path) && self.host_path != '')",
        "a volume is either claim_name or host_path, with mount_path",
    ),
]
