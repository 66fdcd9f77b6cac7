"""Checks the contract in the source of a model file before anything is launched; nothing is imported or run.

What the source does not show (names that are imported or assigned, decorated functions) is left to
`contract.load_contract`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

from elasticdl.errors import SpecError
from elasticdl.model import definition, functions, script_source, source
from elasticdl.model.script_source import ScriptSource
from elasticdl.model.source import Framework, NameBinding
from elasticdl.spec import ComputePrecision, JobKind, JobSpec

MIN_SIMILARITY = 0.85


def check_contract(spec: JobSpec) -> list[str]:
    """Raise one ModelError with all problems of the job's model file; return remarks that do not stop it."""
    if spec.kind is JobKind.SCRIPT:
        assert spec.script is not None
        if not Path(spec.script.path).is_file():
            raise SpecError(f"{spec.script.path}: no such script")
        return _check_script(script_source.read_script(Path(spec.script.path)), is_unmodified=spec.restarts_script)
    assert spec.model is not None
    location = definition.locate_model_file(spec.model)
    tree = source.parse_source(location.file)
    bindings, is_complete = source.find_bindings(tree)
    framework = source.detect_framework(tree)
    check_framework_options(spec, framework)
    problems = [
        *_find_missing(location.function, spec.kind, bindings if is_complete else None, framework),
        *_signature_problems(location.function, bindings, framework),
        *_several_problems(location.function, bindings, framework),
        *_keyword_problems(location.function, spec, bindings, framework),
        *_reader_problems(spec, bindings, is_complete=is_complete),
    ]
    if problems:
        raise definition.make_contract_error(location.file, problems)
    return list(_find_near_misses(location.function, bindings))


def check_framework_options(spec: JobSpec, framework: Framework) -> None:
    """Raise SpecError for options of torch in a training job of another framework."""
    if framework is Framework.TORCH or spec.kind is not JobKind.TRAINING:
        return
    if spec.plan.precision is not ComputePrecision.FP32:
        raise SpecError(
            f"plan.precision: {spec.plan.precision}: torch.autocast does not reach a model of Keras; "
            "leave out --precision"
        )
    if spec.plan.micro_batch_size:
        raise SpecError(
            f"plan.micro_batch_size: {spec.plan.micro_batch_size}: batches of a Keras model are not split; leave out "
            "--micro_batch_size and use more --logical_ranks, each a smaller slice"
        )


def _check_script(script: ScriptSource, *, is_unmodified: bool) -> list[str]:
    if is_unmodified:
        script_source.check_unmodified(script)
        return script_source.advise_port(script)
    script_source.check_joins(script)
    return []


def _find_missing(
    function: str, kind: JobKind, bindings: dict[str, NameBinding] | None, framework: Framework
) -> Iterator[str]:
    if bindings is None:  # `from x import *` may bind any name
        return
    for contract_function in (functions.model_function(function, framework), *functions.FUNCTIONS[framework]):
        if kind in contract_function.needed_by and contract_function.name not in bindings:
            free = set(bindings) - {other.name for other in functions.FUNCTIONS[framework]}
            suggestion = functions.suggest_nearest(contract_function.name, free)
            yield f"{contract_function.name}: expected {contract_function.expected}; found no such function{suggestion}"
    if kind is JobKind.EVALUATION and not {functions.LOSS.name, functions.METRICS.name} & set(bindings):
        yield f"nothing to evaluate: expected {functions.METRICS.expected} or {functions.LOSS.expected}; found neither"


def _signature_problems(function: str, bindings: dict[str, NameBinding], framework: Framework) -> Iterator[str]:
    for contract_function in (functions.model_function(function, framework), *functions.FUNCTIONS[framework]):
        binding = bindings.get(contract_function.name)
        if binding is None:
            continue
        where = f"line {binding.line}, {contract_function.name}: expected {contract_function.expected}"
        if isinstance(binding.node, ast.AsyncFunctionDef):
            yield f"{where}; found async def: write a plain def"
        if binding.signature is not None and (
            problem := functions.signature_problem(contract_function, binding.signature)
        ):
            yield f"{where}; found {contract_function.name}({binding.signature.text}), which {problem}"
        if contract_function is functions.PROCESSOR and isinstance(binding.node, ast.ClassDef):
            yield from _process_problems(binding.node)


def _process_problems(node: ast.ClassDef) -> Iterator[str]:
    methods = {child.name: child for child in node.body if isinstance(child, ast.FunctionDef)}
    where = f"line {node.lineno}, {node.name}: expected a method {functions.PROCESS.expected}"
    if functions.PROCESS.name in methods:
        signature = source.signature_from_source(methods[functions.PROCESS.name].args, is_method=True)
        if problem := functions.signature_problem(functions.PROCESS, signature):
            yield f"{where}; found process({signature.text}), which {problem}"
    elif not node.bases:
        yield f"{where}; found none{functions.suggest_nearest('process', methods)}"


def _several_problems(function: str, bindings: dict[str, NameBinding], framework: Framework) -> Iterator[str]:
    if framework is not Framework.TORCH:
        return
    for name, plural in ((function, "models"), (functions.OPTIMIZER.name, "optimizers")):
        binding = bindings.get(name)
        for value in source.find_returned_values(binding.node) if binding is not None else ():
            if isinstance(value, ast.Tuple | ast.List | ast.Dict):
                yield f"line {value.lineno}, {name} {functions.several_returned_problem(plural)}"
                break


def _keyword_problems(
    function: str, spec: JobSpec, bindings: dict[str, NameBinding], framework: Framework
) -> Iterator[str]:
    assert spec.model is not None
    contract_function = functions.optimizer_function(framework)
    params, rate = spec.model.params, spec.plan.learning_rate
    if rate is not None and "lr" in params:
        yield f"model_params: lr={params['lr']!r} and --learning_rate={rate!r} say two things; give one of them"
    if rate is not None and functions.LEARNING_RATE.name in bindings:
        yield f"learning_rate(step) sets the rate of every step: leave out --learning_rate={rate!r}"
    if function not in bindings or (spec.kind is JobKind.TRAINING and functions.OPTIMIZER.name not in bindings):
        return
    model = bindings[function].signature
    optimizer = bindings[functions.OPTIMIZER.name].signature if functions.OPTIMIZER.name in bindings else None
    is_known = functions.OPTIMIZER.name not in bindings or optimizer is not None
    for key in functions.split_params(params, model, optimizer, framework)[2] if is_known else ():
        yield functions.unknown_param_problem(key, model, optimizer, framework)
    model_function = functions.model_function(function, framework)
    if model and (problem := functions.keyword_problem(model_function, model, params, "--model_params")):
        yield f"line {bindings[function].line}, {function}({model.text}) {problem}"
    if optimizer and spec.kind is JobKind.TRAINING:
        keywords = {*params, *(("lr",) if rate is not None or functions.LEARNING_RATE.name in bindings else ())}
        if problem := functions.keyword_problem(contract_function, optimizer, keywords, "--model_params"):
            yield f"line {bindings[functions.OPTIMIZER.name].line}, optimizer({optimizer.text}) {problem}"
        if (
            rate is not None
            and not optimizer.any_keyword
            and "lr" not in optimizer.names(len(contract_function.arguments))
        ):
            yield f"optimizer({optimizer.text}) does not take lr, so --learning_rate={rate!r} would be ignored"


def _reader_problems(spec: JobSpec, bindings: dict[str, NameBinding], *, is_complete: bool) -> Iterator[str]:
    params, binding = spec.data.reader_params, bindings.get(functions.READER.name)
    if binding is None:
        if params and is_complete:  # `from x import *` may bind it; then the worker checks it
            yield functions.unused_reader_params_problem(params) + functions.suggest_nearest(
                functions.READER.name, set(bindings)
            )
    elif binding.signature is not None and (problem := binding.signature.call_problem(1, params)):
        where = f"line {binding.line}, custom_data_reader({binding.signature.text})"
        yield f"{where} {problem} (reader_params: {', '.join(params) or 'none'})"


def _find_near_misses(function: str, bindings: dict[str, NameBinding]) -> Iterator[str]:
    # A misspelt optional function would be ignored silently.
    contract = functions.FUNCTIONS[Framework.TORCH]  # the names are those of Keras, too
    names = {function, *(contract_function.name for contract_function in contract)}
    for name, binding in bindings.items():
        for optional in (contract_function.name for contract_function in contract if not contract_function.needed_by):
            is_near = SequenceMatcher(None, name.lower(), optional.lower()).ratio() >= MIN_SIMILARITY
            if name not in names and optional not in bindings and is_near:
                yield f"line {binding.line}: {name} is not in the contract, so never called; did you mean {optional}?"
