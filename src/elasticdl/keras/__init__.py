"""Keras models on TensorFlow: the adapter that lets the engine train them, and layers whose rows live on ps."""
