"""A model whose steps take a given time on any machine, for experiments with many workers on few cores."""
