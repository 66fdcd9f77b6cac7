"""Wide & deep in Keras on a census: who earns more than 50,000 dollars a year."""
