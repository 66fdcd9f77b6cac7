"""ResNet in Keras on images of 32 x 32 pixels: CIFAR-10, or synthetic ones."""
