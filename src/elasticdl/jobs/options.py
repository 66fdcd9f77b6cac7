"""Options of a submission by name: parsed into values of a job description, or refused with the nearest name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from elasticdl.errors import SpecError
from elasticdl.spec import Strategy, options
from elasticdl.spec.load import read_yaml_file
from elasticdl.spec.option import RUN, Option, OptionSyntax
from elasticdl.spec.parsing import parse_mapping, parse_pairs
from elasticdl.spec.unsupported_options import UNSUPPORTED, UNSUPPORTED_BY_COMPAT, UNSUPPORTED_BY_RUN

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


def similar_options(name: str, option_names: Sequence[str]) -> list[str]:
    """Options that a user who wrote `name` may have meant: the closest spelling, else options that end with it.

    None is better than a guess that misleads.
    """
    spelled = {option.replace("-", "_"): option for option in option_names}
    usual = [option for option in OPTION_SYNONYMS.get(name, ()) if option in spelled]
    near = usual or get_close_matches(name, spelled, n=1, cutoff=MIN_SIMILARITY)
    alike = near or [option for option in spelled if option.endswith(f"_{name}")]
    return [spelled[option] for option in alike] if len(alike) <= MAX_SUGGESTIONS else []


def unknown_option_message(name: str, option_names: Sequence[str], verb: str, otherwise: str) -> str:
    """Says that `verb` has no option `name`, with what to use instead: `option_names` are the options it has."""
    name = name.replace("-", "_")
    unsupported = UNSUPPORTED | UNSUPPORTED_BY_RUN if verb == RUN else UNSUPPORTED
    if name in unsupported:
        return f"--{name} is not an option here: {unsupported[name]}"
    near = " or ".join(f"--{option}" for option in similar_options(name, option_names))
    return f"no such option --{name}; " + (f"did you mean {near}?" if near else otherwise)


def list_refusals(refusals: Sequence[str]) -> str:
    """One message for all options that are wrong."""
    if len(refusals) == 1:
        return refusals[0]
    return f"{len(refusals)} options are wrong:" + "".join(f"\n  {refusal}" for refusal in refusals)


def parse_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that are not None by name. Words of the command line are parsed; typed values stay."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        option = options.find_option(name)
        if option is not None and value is not None and value != ():
            result[option.name] = _parse_value(option, value)
    return result


def _parse_value(option: Option, value: Any) -> Any:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    match option.syntax, value:
        case OptionSyntax.MAPPING, str():
            return parse_mapping([value], option.flag)
        case OptionSyntax.MAPPING, tuple():
            return parse_mapping(value, option.flag)
        case OptionSyntax.LIST, str():
            return [item.strip() for item in value.split(",")]
        case OptionSyntax.PAIRS, str():
            return parse_pairs(value, option.flag)
        case OptionSyntax.VOLUMES, str():
            return [parse_pairs(volume, option.flag) for volume in value.split(";") if volume.strip()]
        case OptionSyntax.FILE, str():
            return read_yaml_file(Path(value), f"file for {option.flag}", "pod: {metadata: …}")
    return list(value) if option.syntax is OptionSyntax.LIST else value


def pop_script_document(values: dict[str, Any]) -> dict[str, Any]:
    """Takes script, arguments and workers, which only scripts have, out of `values`. Returns their document."""
    script, arguments = values.pop("script", None), values.pop("arguments", None)
    workers = values.pop("workers", None)
    if values.get("compat") is not None:
        for name, reason in UNSUPPORTED_BY_COMPAT.items():
            if values.get(name) is not None:
                raise SpecError(f"--{name} with --compat: {reason}; leave it out")
    document: dict[str, Any] = {}
    if script:
        document["script"] = {"path": os.fspath(script), "arguments": [str(word) for word in arguments or ()]}
    elif arguments:
        raise SpecError("arguments: which script are they for? Give script, too")
    if workers is not None:
        document["workers"] = _parse_workers(str(workers))
    return document


def _parse_workers(text: str) -> dict[str, int]:
    """`2` means exactly two; `1:4` means four, of which one is enough."""
    match = re.fullmatch(r"(?:(\d+):)?(\d+)", text.strip())
    if match is None or int(match[2]) < 1:
        raise SpecError(f"--workers: expected a number such as 2, or min:max such as 1:4; received {text!r}")
    high = int(match[2])
    return {"replicas": high, "max": high} | ({"min": int(match[1])} if match[1] else {})


def check_option_names(names: Iterable[str], verb: str) -> None:
    """Raises SpecError, with the nearest names, for options that the verb does not have."""
    option_names = [name for option in options.options_of(verb) for name in (option.name, option.alias) if name]
    option_names += ["distribution_strategy"] if verb != RUN else ["script", "arguments", "workers"]
    unknown = [name for name in names if name not in option_names]
    if unknown:
        hint = "see docs/api.md"
        raise SpecError(list_refusals([unknown_option_message(name, option_names, verb, hint) for name in unknown]))
