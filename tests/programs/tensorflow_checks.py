"""What the checks of aiacc.tensorflow have in common."""
import numpy as np
import tensorflow as tf

import aiacc.tensorflow as hvd
import rank_checks
from rank_checks import raises  # noqa: F401: for the programs

tf.get_logger().setLevel("ERROR")  # it warns of functions that are traced again and again


def run(functions, words):
    """As rank_checks.run."""
    rank_checks.run(hvd, functions, words)


def equal(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape and (a == b).all(), (a, b)


def near(one, other, tolerance=1e-6):
    """Relative to the largest."""
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    apart = np.abs(one - other).max() if one.size else 0.0
    assert one.shape == other.shape and apart <= tolerance * max(1.0, np.abs(other).max() if other.size else 0.0), (one, other)


def in_both(function, *arguments):
    """What the function returns eagerly, which is what it returns in a graph."""
    eager = function(*arguments)
    graph = tf.function(function)
    for _ in range(3):
        tf.nest.map_structure(lambda one, other: near(one, other), eager, graph(*arguments))
    return eager
