"""The contract between a model file and ElasticDL, and the torch side of keeping it."""
