"""The model file that a config makes: twenty lines that bind the zoo's model to the front."""

from __future__ import annotations

from elasticdl.zoo.ctr.models import KNOWN

_TEMPLATE = '''"""Written by `elasticdl train {name}`. It is an ordinary model file: change it, and it is kept."""

from pathlib import Path

{imports}

_JOB = Job(Path(__file__).parent)


def forward(**params):
    return _JOB.forward(**params)


def loss(labels, predictions):
    return _JOB.loss(labels, predictions)


def optimizer({optimizer}):
    return _JOB.optimizer({optimizer})


{decorator}def dataset_fn(dataset, mode, metadata):
    return _JOB.dataset(dataset, mode)


def eval_metrics_fn():
    return _JOB.metrics()


def callbacks():
    return _JOB.callbacks()


def model_files():
    return _JOB.model_files()
'''
_TORCH = {"imports": "from elasticdl.zoo.ctr.job import Job", "optimizer": "parameters, lr", "decorator": ""}
_KERAS = {
    "imports": "from elasticdl.keras import of_arrays\nfrom elasticdl.zoo.ctr_keras.job import Job",
    "optimizer": "lr",
    "decorator": "@of_arrays\n",
}


def module_of(model: str) -> str:
    """The name of the file, without its ending."""
    return model.replace("/", "_")


def written(model: str, config: str) -> str:
    """The file for a model of the zoo; `config` is the name of the ctr.yaml."""
    return _TEMPLATE.format(name=config, **(_KERAS if KNOWN[model].is_keras else _TORCH))
