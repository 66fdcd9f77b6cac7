"""LeNet on MNIST."""
