"""Lets the engine train Keras models as it trains torch modules."""
