"""bench/tensorflow's subjects: a rank of a job whose training steps have the gradients of a model and a backward pass of a given length, in
which they become ready one after the other, each after a share of the time in proportion to its elements. The rank sleeps meanwhile: it stands
for one whose accelerator computes. Arguments: SUBJECT MODEL COMPUTE_S STEPS WARMUP; prints the median step. The step is a tf.function.

  none          no communication
  tape          aiacc.tensorflow.DistributedGradientTape
  optimizer     Keras's SGD in aiacc.tensorflow.DistributedOptimizer
  multiworker   tf.distribute.MultiWorkerMirroredStrategy, with a number behind it that many bytes in an allreduce at most
"""
import math
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gradients"))
import tensorflow as tf  # noqa: E402
from shapes import MODELS  # noqa: E402

subject, _, pack_bytes = sys.argv[1].partition("-")
model, compute_s, steps, warmup = sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
LEARNING_RATE = 1e-2
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.get_logger().setLevel("ERROR")


class Backward:
    """A gradient of each variable, `value` in all of its elements, ready when its share of the pass is over."""

    def __init__(self, shapes, value):
        self.value, self.began = tf.Variable(value), 0.0  # no constant, of which a graph would make the gradients once and for all
        total, done, self.share = sum(map(math.prod, shapes)), 0, {}
        for index in reversed(range(len(shapes))):
            done += math.prod(shapes[index])
            self.share[index] = done / total

    def sleep(self, share, given):
        time.sleep(max(0.0, self.began + compute_s * float(share) - time.perf_counter()))
        return given

    def loss(self, variables):
        x = tf.constant(1.0)
        for index, variable in enumerate(variables):
            x = self.layer(index, variable.shape)(x, tf.convert_to_tensor(variable))
        return x

    def layer(self, index, shape):
        @tf.custom_gradient
        def apply(x, variable):
            def backward(given):
                if compute_s:
                    given = tf.ensure_shape(tf.numpy_function(self.sleep, [self.share[index], given], tf.float32), [])
                return given, tf.fill(shape, given * self.value)
            return tf.identity(x), backward
        return apply


def made(shapes):
    return [tf.Variable(tf.zeros(shape)) for shape in shapes]


def moved(variables, gradients):
    for variable, gradient in zip(variables, gradients):
        variable.assign_sub(LEARNING_RATE * gradient)


def of_none(shapes):
    variables, backward = made(shapes), Backward(shapes, 1.5)  # the mean of two ranks

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = backward.loss(variables)
        moved(variables, tape.gradient(loss, variables))
    return step, lambda: None, variables, backward, 2


def of_aiacc(shapes):
    import aiacc.tensorflow as hvd
    hvd.init()
    variables, backward = made(shapes), Backward(shapes, hvd.rank() + 1.0)
    sgd = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(LEARNING_RATE)) if subject == "optimizer" else None

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = backward.loss(variables)
        if sgd is None:
            moved(variables, hvd.DistributedGradientTape(tape).gradient(loss, variables))
        else:
            sgd.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return step, lambda: hvd.allreduce(tf.constant(1.0), name="meeting"), variables, backward, hvd.size()


def of_strategy(shapes):
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING))
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=int(pack_bytes or 0))
    with strategy.scope():
        variables = made(shapes)
    backward = Backward(shapes, strategy.cluster_resolver.task_id + 1.0)

    def of_replica():
        with tf.GradientTape() as tape:
            loss = backward.loss(variables)
        gradients = tape.gradient(loss, variables)
        moved(variables, tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients, options))

    def meeting():
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0))
    barrier = tf.function(lambda: strategy.run(meeting))
    return tf.function(lambda: strategy.run(of_replica)), lambda: float(barrier()), variables, backward, strategy.num_replicas_in_sync


def main():
    step, barrier, variables, backward, ranks = {"none": of_none, "multiworker": of_strategy}.get(subject, of_aiacc)(MODELS[model]())
    times = []
    for _ in range(warmup + steps):
        barrier()
        began = backward.began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    print(f"step {statistics.median(times[warmup:]):.6f} s", flush=True)
    expected = -LEARNING_RATE * (ranks + 1) / 2 * len(times)
    for variable in variables:
        if not math.isclose(float(tf.reshape(variable, [-1])[-1]), expected, rel_tol=1e-4):
            print(f"wrong result: {float(tf.reshape(variable, [-1])[-1])} instead of {expected}", flush=True)
            break
    barrier()
    os._exit(0)  # servers of TensorFlow do not end with their process's other threads


main()
