"""Programs of TensorFlow 1, with all that it had: sessions, variables that are no resources, and shapes of Dimensions."""
import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")  # it warns of what is old
tf.compat.v1.disable_v2_behavior()

import sys

import aiacc.tensorflow as hvd
import aiacc.tensorflow.keras as hvk
from tensorflow_checks import equal, near, raises, run

v1 = tf.compat.v1


def check_variables_that_are_no_resources():
    with tf.Graph().as_default():
        variable = v1.get_variable("w", initializer=np.float32(hvd.rank() + 1))
        assert variable.dtype.name == "float32_ref"
        total, root = hvd.allreduce(variable, op=hvd.Sum), hvd.broadcast(variable, 0)
        with v1.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(0)]) as session:
            near(session.run([variable, total, root]), [1.0, hvd.size(), 1.0])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(hvd.broadcast_variables([variable], hvd.size() - 1))
            near(session.run(variable), hvd.size())


def check_shapes_of_dimensions():
    with tf.Graph().as_default(), v1.Session() as session:
        given = tf.constant(np.arange(2 * hvd.size()).reshape(-1, 1), tf.float32)
        equal(session.run(hvd.alltoall(given)).ravel(), [2 * hvd.rank(), 2 * hvd.rank() + 1] * hvd.size())
        near(session.run(hvd.reducescatter(given, op=hvd.Sum)).ravel(), [2 * hvd.rank() * hvd.size(), (2 * hvd.rank() + 1) * hvd.size()])
        equal(session.run(hvd.allgather(given)), np.tile(session.run(given), (hvd.size(), 1)))


def check_an_optimizer_with_an_embedding():
    for compression in (hvd.Compression.none, hvd.Compression.fp16):
        with tf.Graph().as_default():
            table = v1.get_variable("table", initializer=np.ones([6, 2], np.float32))
            weight = v1.get_variable("weight", initializer=np.ones([2], np.float32))
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [hvd.rank(), 5]) * weight)
            step = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.5), compression=compression, op=hvd.Sum).minimize(loss)
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                session.run(step)
                expected = np.ones([6, 2])
                expected[:hvd.size()] -= 0.5
                expected[5] -= 0.5 * hvd.size()
                near(session.run(table), expected, 1e-3)
                near(session.run(weight), 1 - 0.5 * np.full(2, 2.0 * hvd.size()), 1e-3)


def check_callbacks_of_keras():
    assert "disable_eager_execution" in raises(NotImplementedError, hvk.callbacks.MetricAverageCallback().on_train_begin)


if __name__ == "__main__":
    run(globals(), sys.argv[1:])
