"""Click-through-rate models from a config alone: ctr.yaml to a directory with features and a model file, and an ordinary job."""
