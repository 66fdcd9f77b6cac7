"""The preprocessor: transforms bound to statistics, raw columns in, a model's inputs out."""
