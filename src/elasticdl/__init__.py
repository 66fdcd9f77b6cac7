"""ElasticDL: elastic distributed deep learning, on a laptop or on Kubernetes."""

__version__ = "0.3.0"
