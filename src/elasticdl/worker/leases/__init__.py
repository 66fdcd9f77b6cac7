"""Work by leases: training with the model on ps, evaluation and prediction, one leased shard after another."""
