"""Reads the batches of each logical rank ahead: records, torch DataLoaders and streams."""
