"""The training state of a worker, the steps that change it, and the checks that keep all workers equal."""
