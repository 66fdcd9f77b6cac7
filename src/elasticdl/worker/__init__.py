"""The process that computes: it may die or join at any time."""
