"""A model that takes as long as it is told, whatever the machine: for experiments with many workers on few cores."""
