"""LeNet on MNIST, and in Keras the net of the original by the functional API and as a class."""
