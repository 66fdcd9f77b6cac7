"""A small convolutional net on the 8 x 8 digits inside scikit-learn."""
