"""Options of a submission by name: parsed into values of a job description, or refused with the nearest name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from elasticdl.spec import Strategy, options
from elasticdl.spec.load import read_yaml_file
from elasticdl.spec.options import OptionSyntax
from elasticdl.spec.parsing import parse_mapping, parse_pairs
from elasticdl.spec.unsupported_options import UNSUPPORTED, UNSUPPORTED_BY_RUN

LOCAL_STRATEGY = "Local"
STRATEGY_NAMES = (Strategy.ALLREDUCE.value, Strategy.PS.value, LOCAL_STRATEGY)


# What other tools call it.
OPTION_SYNONYMS = {
    "batch_size": ("minibatch_size", "global_batch_size"),
    "data": ("training_data",),
    "epochs": ("num_epochs",),
    "lr": ("learning_rate",),
    "model": ("model_zoo", "model_def"),
    "name": ("job_name",),
    "workers": ("num_workers",),
}
MIN_SIMILARITY = 0.75  # a ratio of difflib: in four letters, two have changed places
MAX_SUGGESTIONS = 3  # more options with the same word are no help


def similar_options(name: str, known: Sequence[str]) -> list[str]:
    """Those that a user who wrote `name` may have meant: the closest spelling, else options that end with it.

    None is better than a guess that misleads.
    """
    spelled = {option.replace("-", "_"): option for option in known}
    usual = [option for option in OPTION_SYNONYMS.get(name, ()) if option in spelled]
    near = usual or get_close_matches(name, spelled, n=1, cutoff=MIN_SIMILARITY)
    alike = near or [option for option in spelled if option.endswith(f"_{name}")]
    return [spelled[option] for option in alike] if len(alike) <= MAX_SUGGESTIONS else []


def unknown_option_message(name: str, known: Sequence[str], verb: str, otherwise: str) -> str:
    """Says that `verb` has no option `name`, with what to use instead: `known` are the options it has."""
    name = name.replace("-", "_")
    unsupported = UNSUPPORTED | UNSUPPORTED_BY_RUN if verb == options.RUN else UNSUPPORTED
    if name in unsupported:
        return f"--{name} is not an option here: {unsupported[name]}"
    near = " or ".join(f"--{option}" for option in similar_options(name, known))
    return f"no such option --{name}; " + (f"did you mean {near}?" if near else otherwise)


def list_refusals(refusals: Sequence[str]) -> str:
    """One message for all options that are wrong."""
    if len(refusals) == 1:
        return refusals[0]
    return f"{len(refusals)} options are wrong:" + "".join(f"\n  {refusal}" for refusal in refusals)


def parse_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that are not None by name. Words of the command line are parsed; other values stay."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        option = options.find_option(name)
        if option is None or value is None or value == ():
            continue
        if option.syntax is OptionSyntax.MAPPING:
            value = parse_mapping(value, option.flag)
        elif option.syntax is OptionSyntax.LIST:
            value = [item.strip() for item in value.split(",")]
        elif option.syntax is OptionSyntax.PAIRS:
            value = parse_pairs(value, option.flag)
        elif option.syntax is OptionSyntax.VOLUMES:
            value = [parse_pairs(one, option.flag) for one in value.split(";") if one.strip()]
        elif option.syntax is OptionSyntax.FILE:
            value = read_yaml_file(Path(value), f"file for {option.flag}", "pod: {metadata: …}")
        result[name] = value
    return result
