"""Hyperparameter search: a search space, a study of trials kept by Optuna, and a loop that runs each trial as a job."""
