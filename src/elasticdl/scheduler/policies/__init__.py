"""All policies by name. The module of a policy is imported only when it is used, because some need scipy."""

from __future__ import annotations

from importlib import import_module

from elasticdl.errors import SpecError
from elasticdl.scheduler.interface import Policy

# name: (module, parameters that differ from the class's defaults)
POLICY_REGISTRY: dict[str, tuple[str, dict[str, object]]] = {
    "afs-l": ("afs", {"name": "afs-l"}),
    "afs-p": ("afs", {"name": "afs-p", "knows_length": False, "interval_s": 600.0}),
    "antman": ("antman", {}),
    "aonline": ("aonline", {}),
    "max-min": ("max_min", {}),
    "elastic-first-come": ("elastic_first_come", {}),
    "elastic-tiresias": ("elastic_tiresias", {}),
    "fifo-gang": ("fifo_gang", {}),
    "fifo-gang-strict": ("fifo_gang", {"name": "fifo-gang-strict", "is_strict": True}),
    "gandiva": ("gandiva", {}),
    "gavel": ("gavel", {}),
    "gavel-fairness": ("gavel", {"name": "gavel-fairness", "objective": "fairness"}),
    "gavel-makespan": ("gavel", {"name": "gavel-makespan", "objective": "makespan"}),
    "goodput": ("goodput.policy", {}),
    "oasis": ("oasis", {}),
    "optimus": ("optimus", {}),
    "optimus-oracle": ("optimus", {"name": "optimus-oracle", "needs_oracle": True}),
    "pickyman": ("pickyman", {}),
    "pollux": ("pollux", {}),
    "sia": ("sia", {}),
    "themis": ("themis", {}),
    "tiresias": ("tiresias", {}),
    "tiresias-gittins": ("tiresias", {"name": "tiresias-gittins", "is_gittins": True}),
}


def load_policy(text: str) -> Policy:
    """Returns the policy `tiresias`, or with parameters of its class `tiresias:threshold_s=3600,promote_after=8`."""
    name, _, parameters = text.partition(":")
    if name not in POLICY_REGISTRY:
        raise SpecError(f"--policy: no policy {name!r}; there are {', '.join(sorted(POLICY_REGISTRY))}")
    module, preset = POLICY_REGISTRY[name]
    policy_class = import_module(f"elasticdl.scheduler.policies.{module}").POLICY
    values = {**preset, **_parse_parameters(text, parameters, policy_class)}
    policy: Policy = policy_class(**values)
    return policy


def _parse_parameters(text: str, parameters: str, policy_class: type) -> dict[str, object]:
    types = {name: type(field.default) for name, field in policy_class.__dataclass_fields__.items()}  # type: ignore[attr-defined]
    values: dict[str, object] = {}
    for part in filter(None, parameters.split(",")):
        key, equals, value = part.partition("=")
        if not equals or types.get(key) not in (int, float, str, bool):
            raise SpecError(f"--policy {text}: expected NAME=VALUE with one of {', '.join(types)}, received {part!r}")
        try:
            values[key] = value.lower() in ("true", "yes", "1") if types[key] is bool else types[key](value)
        except ValueError:
            raise SpecError(f"--policy {text}: {key} is a {types[key].__name__}, received {value!r}") from None
    return values
