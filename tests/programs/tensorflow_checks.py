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


# --- a small model, and the batches of ranks

ROWS = 4  # of a rank's batch


def batch(rank, rows=ROWS, seed=0):
    made = np.random.RandomState(100 * seed + rank)
    return made.randn(rows, 5).astype(np.float32), made.randint(0, 3, rows)


def joined(rows=ROWS, seed=0):
    parts = [batch(rank, rows, seed) for rank in range(hvd.size())]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def network(seed=1):
    tf.keras.utils.set_random_seed(seed)
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Input((5,)), layers.Dense(7, activation="tanh"), layers.Dense(3)])


LOSS = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def values(variables):
    return [one.numpy() for one in variables]


def alone(steps, optimizer, make=network, rows=ROWS):
    """The variables after so many steps of one process."""
    model = make()
    for step in range(steps):
        x, y = joined(rows, step)
        with tf.GradientTape() as tape:
            loss = LOSS(y, model(x, training=True))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return values(model.trainable_variables)


def all_near(got, want, tolerance=1e-5):
    for one, other in zip(got, want, strict=True):
        near(one, other, tolerance)
