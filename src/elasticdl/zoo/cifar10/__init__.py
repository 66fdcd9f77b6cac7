"""ResNet in Keras on pictures of 32 x 32 pixels: CIFAR-10, or ones that are made up."""
