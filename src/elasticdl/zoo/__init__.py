"""Model files that read like the papers they come from. Each directory is a model file and its data."""
