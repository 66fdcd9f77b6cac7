"""Click-through-rate models in Keras, one in each file."""
