"""A small convolutional net on digits of 8 x 8 pixels."""
