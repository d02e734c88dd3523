"""AIACC-Training's packages for TensorFlow."""
