#!/usr/bin/env python3
"""A small CNN learns handwritten digits on all ranks of a job, by Keras's fit or by a loop over a tf.GradientTape, in Horovod's style: with
Horovod, the import lines are the only ones that differ. Each rank takes its share of every batch, so the run is the same whatever the number of
ranks.

    aiaccrun -np 4 python3 digits.py --data digits.txt --loop tape
"""
import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow tells of its processors otherwise

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import aiacc.tensorflow.keras as hvd  # noqa: E402
from aiacc.tensorflow import DistributedGradientTape, broadcast_variables  # noqa: E402

LOSS = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "digits/digits.txt", help="the images")
    parser.add_argument("--loop", choices=("keras", "tape"), default="keras")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64, help="images of a step, over all ranks")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--result", type=pathlib.Path, help="a file for loss and accuracy of each epoch")
    return parser.parse_args()


def images(path):
    """Pixels from 0 to 1, and digits: a line is 64 characters 0 to g and the digit."""
    pixels, digits = zip(*(line.split() for line in path.read_text().splitlines()))
    scaled = np.array([[int(character, 17) for character in one] for one in pixels], np.float32) / 16
    return scaled.reshape(-1, 8, 8, 1), np.array(digits, np.int64)


def network():
    # Without ReLU and maxima: where a gradient jumps, a difference in the last bit can change the third digit of the loss.
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Input((8, 8, 1)), layers.Conv2D(16, 3, padding="same", activation="tanh"),
                                layers.Conv2D(32, 3, strides=2, padding="same", activation="tanh"), layers.Flatten(),
                                layers.Dense(64, activation="tanh"), layers.Dense(10)])


def share(indices):
    """This rank's part of them."""
    return indices[hvd.rank()::hvd.size()]


class ByKeras:
    """model.fit: the optimizer reduces gradients, a callback gives all ranks the variables of rank 0, another one averages metrics."""

    def __init__(self, model, rate):
        self._model = model
        self._model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(rate, momentum=0.9)), loss=LOSS)
        # Before the first batch here, because the run is to be the same as on one rank; the callback comes behind it.
        broadcast_variables(model.variables, root_rank=0)
        self._callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]

    def epoch(self, x, y, batch):
        history = self._model.fit(x, y, batch_size=batch, shuffle=False, verbose=0, callbacks=self._callbacks)
        return history.history["loss"][0]


class ByTape:
    """A loop of one's own in a graph."""

    def __init__(self, model, rate):
        self._model, self._optimizer = model, tf.keras.optimizers.SGD(rate, momentum=0.9)
        broadcast_variables(model.variables, root_rank=0)

        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = LOSS(y, model(x, training=True))
            gradients = DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
            self._optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return loss
        self._step = step

    def epoch(self, x, y, batch):
        losses = [float(self._step(x[i:i + batch], y[i:i + batch])) for i in range(0, len(x), batch)]
        return hvd.allreduce(np.mean(losses), name="loss")


def main():
    options = arguments()
    hvd.init()
    tf.keras.utils.set_random_seed(options.seed + hvd.rank())
    if options.batch % hvd.size():
        raise SystemExit(f"a batch of {options.batch} does not divide among {hvd.size()} ranks")
    x, y = images(options.data)
    order = np.random.RandomState(options.seed).permutation(len(x))
    train, test = order[:len(x) * 4 // 5], order[len(x) * 4 // 5:]

    model = network()
    loop = (ByKeras if options.loop == "keras" else ByTape)(model, options.lr)
    lines = []
    for epoch in range(options.epochs):
        shuffled = np.random.RandomState(options.seed + epoch).permutation(train)
        mine = share(shuffled[:len(train) // options.batch * options.batch])
        loss = loop.epoch(x[mine], y[mine], options.batch // hvd.size())
        right = np.sum(model(x[share(test)]).numpy().argmax(1) == y[share(test)])
        accuracy = hvd.allreduce(float(right), name="right", op=hvd.Sum) / len(test)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1:2}  loss {loss:.6f}  test accuracy {100 * accuracy:5.2f} %", flush=True)
            lines.append(f"{loss:.9f} {accuracy:.6f}\n")
            if options.result:
                options.result.write_text("".join(lines))


if __name__ == "__main__":
    main()
