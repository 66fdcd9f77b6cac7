"""The functions of the contract: what each takes and returns, and which kinds of jobs need it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from elasticdl.model.source import Framework, Signature
from elasticdl.spec import JobKind

TRAINING = frozenset({JobKind.TRAINING})
ALWAYS = frozenset({JobKind.TRAINING, JobKind.EVALUATION, JobKind.PREDICTION})
NEVER: frozenset[JobKind] = frozenset()

_PREDICTIONS = {"predictions", "prediction", "predicted", "preds", "pred", "outputs", "output", "logits", "input"}
_LABELS = {"labels", "label", "targets", "target", "truth", "y_true"}


@dataclass(frozen=True, slots=True)
class ContractFunction:
    """One function of the contract."""

    name: str
    arguments: tuple[str, ...]  # passed by position
    returns: str
    needed_by: frozenset[JobKind]
    keywords: str = ""  # other arguments it may take, for messages

    @property
    def expected(self) -> str:
        inside = ", ".join((*self.arguments, self.keywords) if self.keywords else self.arguments)
        return f"{self.name}({inside}) -> {self.returns}"


def several_returned_problem(plural: str) -> str:
    """The problem of a function that returns several models, or several optimizers."""
    return (
        f"returns several {plural}; a model file trains one model with one optimizer. For more write a script with "
        "elasticdl.torch.join, which takes lists of both, as examples/12-gan does"
    )


def model_function(name: str, framework: Framework) -> ContractFunction:
    """The function in --model_def: it may have any name."""
    returns = "keras.Model" if framework is Framework.KERAS else "torch.nn.Module"
    return ContractFunction(name, (), returns, ALWAYS, "**model_params")


LOSS = ContractFunction("loss", ("labels", "predictions"), "scalar tensor", TRAINING)
OPTIMIZER = ContractFunction("optimizer", ("parameters",), "torch.optim.Optimizer", TRAINING, "lr=…")
KERAS_OPTIMIZER = ContractFunction("optimizer", (), "keras.optimizers.Optimizer", TRAINING, "lr=…")
DATASET = ContractFunction("dataset_fn", ("dataset", "mode", "metadata"), "dataset of (features, labels)", ALWAYS)
METRICS = ContractFunction("eval_metrics_fn", (), "dict of name to function or Metric", NEVER)
CALLBACKS = ContractFunction("callbacks", (), "list of Callback", NEVER)
LEARNING_RATE = ContractFunction("learning_rate", ("step",), "float", NEVER)
READER = ContractFunction(
    "custom_data_reader", ("data_path",), "RecordSource or map-style dataset", NEVER, "**reader_params"
)
MODEL_FILES = ContractFunction("model_files", (), "dict of file name to bytes", NEVER)
PROCESSOR = ContractFunction("PredictionOutputsProcessor", (), "object with process(predictions, worker_id)", NEVER)
PROCESS = ContractFunction("process", ("predictions", "worker_id"), "None", NEVER)

_SHARED_FUNCTIONS = (DATASET, METRICS, CALLBACKS, LEARNING_RATE, READER, MODEL_FILES, PROCESSOR)
FUNCTIONS = {
    Framework.TORCH: (LOSS, OPTIMIZER, *_SHARED_FUNCTIONS),
    Framework.KERAS: (LOSS, KERAS_OPTIMIZER, *_SHARED_FUNCTIONS),
}


def optimizer_function(framework: Framework) -> ContractFunction:
    return KERAS_OPTIMIZER if framework is Framework.KERAS else OPTIMIZER


def signature_problem(contract_function: ContractFunction, signature: Signature) -> str | None:
    """Why the function cannot be called as the contract says. Keywords are left to `keyword_problem`."""
    names = signature.positional[: len(contract_function.arguments)]
    if names != contract_function.arguments and sorted(names) == sorted(contract_function.arguments):
        return "takes the arguments in another order"
    if contract_function is LOSS and len(names) == 2 and names[0] in _PREDICTIONS and names[1] in _LABELS:
        return "takes the predictions first; labels come first here"
    if contract_function.keywords:
        # Which keywords it must get is known only with the job's parameters.
        keywords = signature.names(len(contract_function.arguments))
        return signature.call_problem(len(contract_function.arguments), keywords)
    return signature.call_problem(len(contract_function.arguments))


def keyword_problem(
    contract_function: ContractFunction, signature: Signature, keywords: Iterable[str], option: str
) -> str | None:
    """Why the keywords of `option` do not suit the function. Keywords that it does not take are ignored."""
    own = signature.names(len(contract_function.arguments)) & set(keywords)
    problem = signature.call_problem(len(contract_function.arguments), own)
    return f"{problem}; give it with {option} or a default" if problem else None


def split_params(
    params: Mapping[str, Any], model: Signature | None, optimizer: Signature | None, framework: Framework
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Divides model parameters: those for the model, those for the optimizer, and the keys that neither takes.

    A key goes to each function that names it; a key that none names goes to those with `**`. A model
    whose signature is unknown (None) counts as `**`; an optimizer that is None does not exist.
    """
    model_names = model.names() if model else frozenset()
    optimizer_names = optimizer.names(len(optimizer_function(framework).arguments)) if optimizer else frozenset()
    open_model = model is None or model.any_keyword
    open_optimizer = optimizer is not None and optimizer.any_keyword
    named = model_names | optimizer_names
    to_model = {k: v for k, v in params.items() if k in model_names or (k not in named and open_model)}
    to_optimizer = {k: v for k, v in params.items() if k in optimizer_names or (k not in named and open_optimizer)}
    return to_model, to_optimizer, [key for key in params if key not in to_model and key not in to_optimizer]


def unknown_param_problem(key: str, model: Signature | None, optimizer: Signature | None, framework: Framework) -> str:
    by_position = len(optimizer_function(framework).arguments)
    names = (model.names() if model else frozenset()) | (optimizer.names(by_position) if optimizer else frozenset())
    taken = f"they take {', '.join(sorted(names))}" if names else "they take none"
    return f"model_params: neither the model nor optimizer takes {key!r}; {taken}{suggest_nearest(key, names)}"


def unused_reader_params_problem(params: Iterable[str]) -> str:
    """The problem of --data_reader_params if the model file has no reader: nothing takes them."""
    return (
        f"--data_reader_params: {', '.join(params)} would be ignored, because only {READER.name} of the model file "
        f"takes them: define {READER.expected}, or leave the option out. --data_format, --columns and --delimiter "
        "say how files and tables are read"
    )


def suggest_nearest(name: str, candidates: Iterable[str]) -> str:
    """`; did you mean x?` if one of the candidates is close, else an empty text."""
    close = get_close_matches(name, sorted(candidates), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
