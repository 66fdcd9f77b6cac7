"""Click-through-rate models from a config alone: ctr.yaml becomes a directory with a model file, and a job."""
