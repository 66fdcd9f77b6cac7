"""The operator: turns each ElasticJob of a cluster into the objects of a job."""
