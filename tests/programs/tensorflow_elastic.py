"""A rank of an elastic job: tensorflow_elastic.py DIRECTORY [STEP:PLACE]... The process that aiaccrun started as rank PLACE kills itself once, in the
middle of that step. Each rank prints what all must agree on at the end."""
import hang_report

hang_report.after(180)

import os
import pathlib
import signal
import sys

import numpy as np
import tensorflow as tf

import aiacc.tensorflow.keras as hvd
from aiacc.tensorflow import DistributedGradientTape

tf.get_logger().setLevel("ERROR")
folder, deaths = pathlib.Path(sys.argv[1]), [tuple(map(int, one.split(":"))) for one in sys.argv[2:]]
place = int(os.environ["AIACC_RANK"])
is_new = any((folder / f"{step}.{who}").exists() for step, who in deaths if who == place)
data = tf.constant(np.linspace(-1, 1, 36).reshape(12, 3), tf.float64)


def die_if_asked(step):
    for at, who in deaths:
        if (at, who) == (step, place) and not (folder / f"{at}.{who}").exists():
            (folder / f"{at}.{who}").touch()
            os.kill(os.getpid(), signal.SIGKILL)


hvd.init()
# A new rank begins with other values than the others have.
model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(1, kernel_initializer=tf.keras.initializers.Constant(0.5 + is_new), dtype="float64")])
optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
optimizer.build(model.trainable_variables)
sizes, resets = [], []


@tf.function
def two_losses(scale):
    with DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_mean(model(data) ** 2) * scale
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return tf.add_n([tf.reduce_sum(one) for one in gradients])


@hvd.elastic.run
def train(state):
    sizes.append(hvd.size())
    while state.step < 8:
        die_if_asked(state.step)
        two_losses(tf.constant(1.0 + hvd.rank() - (hvd.size() - 1) / 2, tf.float64))  # on average the same, however many ranks
        state.step += 1
        if state.step % 2 == 0:
            state.commit()
    return state.step


state = hvd.elastic.KerasState(model, optimizer, step=0)
state.register_reset_callbacks([lambda: resets.append(hvd.size())])
assert train(state) == 8
weight = model.layers[-1].kernel.numpy()
assert (np.array(hvd.allgather(weight[None])) == weight).all()
print(place, hvd.rank(), int(optimizer.iterations), *sizes, *resets, "%.9f" % weight.sum(), flush=True)
hang_report.over()
hvd.shutdown()
