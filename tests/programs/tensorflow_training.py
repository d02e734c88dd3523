"""Gradients of tapes and optimizers in aiacc.tensorflow, against what one process computes on the batches of all ranks. What Keras adds is in
tensorflow_keras.py."""
import os
import sys
import warnings

import numpy as np
import tensorflow as tf

import aiacc.tensorflow as hvd
import aiacc.tensorflow.keras as hvk
from tensorflow_checks import LOSS, ROWS, all_near, alone, batch, joined, near, network, raises, run, values


def check_a_tape_in_a_loop_of_ones_own():
    want = alone(3, tf.keras.optimizers.SGD(0.1, momentum=0.9))
    for wrap in (lambda step: step, tf.function):
        for arguments in ({}, {"gradient_predivide_factor": 2.0}, {"num_groups": 1}, {"op": hvd.Sum}):
            model, optimizer = network(), tf.keras.optimizers.SGD(0.1 / (hvd.size() if arguments.get("op") == hvd.Sum else 1), momentum=0.9)

            @wrap
            def step(x, y):
                with tf.GradientTape() as tape:
                    loss = LOSS(y, model(x, training=True))
                tape = hvd.DistributedGradientTape(tape, **arguments)
                optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
            for number in range(3):
                step(*map(tf.constant, batch(hvd.rank(), seed=number)))
            all_near(values(model.trainable_variables), want)


def check_what_a_tape_returns():
    x = tf.Variable([1.0, 2.0])
    unused, rest = tf.Variable(3.0), tf.Variable(hvd.rank() + 1.0)
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        loss = tf.reduce_sum(x) * (hvd.rank() + 1.0) + rest ** 2
    mean = (hvd.size() + 1) / 2
    got = tape.gradient(loss, {"x": x, "unused": unused, "rest": [rest]})
    near(got["x"], [mean, mean])
    assert got["unused"] is None
    near(got["rest"][0], 2 * mean)
    near(tape.gradient(loss, x), [mean, mean])
    tape.register_local_source(rest)
    near(tape.gradient(loss, [rest])[0], 2 * (hvd.rank() + 1.0) / hvd.size())
    local, others = tape.get_local_and_global_gradients(loss, [x, rest])
    assert [pair[0] is rest for pair in local] == [True] and [pair[0] is x for pair in others] == [True]
    kept = hvd.DistributedGradientTape(tf.GradientTape(), scale_local_gradients=False)
    kept.register_local_source(x)
    with kept:
        loss = tf.reduce_sum(x) * (hvd.rank() + 1.0)
    near(kept.gradient(loss, x), [hvd.rank() + 1.0] * 2)
    with tf.GradientTape(persistent=True) as plain:
        loss = tf.reduce_sum(x) * (hvd.rank() + 1.0)
    wrapped = [hvd.DistributedGradientTape(plain, op=op) for op in (hvd.Sum, hvd.Average)]
    for tape, expected in zip(wrapped, (hvd.size() * mean, mean)):  # each has its own settings
        near(tape.gradient(loss, x), [expected] * 2)
    layer = tf.keras.layers.Dense(2)
    layer.build((None, 2))
    with hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[layer], scale_local_gradients=False) as partial:
        loss = tf.reduce_sum(layer(tf.ones([1, 2]))) * (hvd.rank() + 1.0) + tf.reduce_sum(x) * (hvd.rank() + 1.0)
    first, second = partial.gradient(loss, [layer.kernel, x])
    near(first, np.full((2, 2), hvd.rank() + 1.0))
    near(second, [mean, mean])


def check_gradients_whose_size_a_graph_does_not_know():
    weight = tf.Variable(tf.ones([2]))

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(x * weight) * (hvd.rank() + 1.0)
        return hvd.DistributedGradientTape(tape).gradient(loss, [x, weight])
    for rows in (2, 5):
        of_x, of_weight = step(tf.ones([rows, 2]))
        near(of_x, np.full((rows, 2), (hvd.size() + 1) / 2))
        near(of_weight, np.full(2, rows * (hvd.size() + 1) / 2))


class Halves:
    """A compression of one's own."""

    @staticmethod
    def compress(tensor):
        return tf.cast(tensor / 2, tf.float64), tensor.dtype

    @staticmethod
    def decompress(tensor, dtype):
        return tf.cast(tensor * 2, dtype)


def check_compression():
    want = alone(2, tf.keras.optimizers.SGD(0.1))
    for compression, tolerance in ((hvd.Compression.fp16, 2e-3), (Halves, 1e-5)):
        model = network()
        model.compile(hvk.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), compression=compression), LOSS)
        for number in range(2):
            model.train_on_batch(*batch(hvd.rank(), seed=number))
        all_near(values(model.trainable_variables), want, tolerance)


def check_rows_of_an_embedding():
    def table(seed=3):
        tf.keras.utils.set_random_seed(seed)
        return tf.keras.layers.Embedding(20, 4)

    def gradients(layer, wrap, ids, **arguments):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids) ** 2)
        return (hvd.DistributedGradientTape(tape, **arguments) if wrap else tape).gradient(loss, layer.trainable_variables)[0]
    everyones = tf.constant([[(3 * rank + i) % 20, 7, 7] for rank in range(hvd.size()) for i in range(2)])
    layer = table()
    layer.build(None)
    want = tf.convert_to_tensor(gradients(layer, False, everyones)) / hvd.size()
    mine = everyones[2 * hvd.rank():2 * hvd.rank() + 2]
    for call in (gradients, tf.function(gradients)):
        near(tf.convert_to_tensor(call(layer, True, mine, compression=hvd.Compression.fp16)), want)  # rows have full precision
        got = call(layer, True, mine)
        assert isinstance(got, tf.IndexedSlices) and got.dense_shape is not None
        near(tf.convert_to_tensor(got), want)
        dense = call(layer, True, mine, sparse_as_dense=True)
        assert isinstance(dense, tf.Tensor)
        near(dense, want)

    def trained(make, ids):
        model = tf.keras.Sequential([table(), tf.keras.layers.Flatten(), tf.keras.layers.Dense(1, kernel_initializer="ones")])
        model.build((None, 3))
        model.compile(make(tf.keras.optimizers.SGD(0.1)), "mse")
        for _ in range(2):
            model.train_on_batch(ids, np.ones((len(ids), 1), np.float32))
        return values(model.trainable_variables)
    all_near(trained(hvk.DistributedOptimizer, mine), trained(lambda plain: plain, everyones))


def check_two_optimizers_in_one_graph():
    first, second = network(1), network(2)
    optimizers = [hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)) for _ in range(2)]

    @tf.function
    def step(x, y):
        with tf.GradientTape(persistent=True) as tape:
            losses = [LOSS(y, model(x)) for model in (first, second)]
        for loss, model, optimizer in zip(losses, (first, second), optimizers):
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    for number in range(3):
        step(*map(tf.constant, batch(hvd.rank(), seed=number)))
    all_near(values(first.trainable_variables), alone(3, tf.keras.optimizers.SGD(0.1)))
    all_near(values(second.trainable_variables), alone(3, tf.keras.optimizers.SGD(0.1), lambda: network(2)))


def check_an_optimizer_of_tensorflow_1():
    def trained(x, y, distributed):
        with tf.Graph().as_default():
            given, wanted = (tf.compat.v1.placeholder(tf.float32, [None, 5]), tf.compat.v1.placeholder(tf.float32, [None]))
            weight = tf.compat.v1.get_variable("weight", initializer=tf.fill([5, 1], 0.1 if not distributed or hvd.rank() == 0 else 9.0))
            table = tf.compat.v1.get_variable("table", initializer=tf.ones([4, 1]))
            rows = tf.gather(table, tf.cast(wanted, tf.int32))
            loss = tf.reduce_mean((given @ weight + rows - wanted[:, None]) ** 2)
            optimizer = tf.compat.v1.train.MomentumOptimizer(0.05, 0.9)
            hooks = []
            if distributed:
                optimizer, hooks = hvd.DistributedOptimizer(optimizer), [hvd.BroadcastGlobalVariablesHook(0)]
            train = optimizer.minimize(loss)
            with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
                for _ in range(3):
                    session.run(train, {given: x, wanted: y})
                return session.run([weight, table])
    all_near(trained(*batch(hvd.rank()), True), trained(*joined(), False))
    plain = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    assert "Keras" in raises(ValueError, hvd.DistributedOptimizer, plain, backward_passes_per_step=2)


def check_gradients_that_ranks_disagree_about():
    if hvd.size() == 1:
        return
    one = tf.Variable(tf.ones([2 + hvd.rank()]))
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        loss = tf.reduce_sum(one)
    words = raises(tf.errors.OpError, tape.gradient, loss, one)
    assert "ranks disagree about" in words and "Variable" in words, words
    words = raises(tf.errors.OpError, tape.gradient, loss, one)  # again, and no hang
    assert "disagree" in words, words

    @tf.function
    def in_a_graph():
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(one)
        return tape.gradient(loss, one)
    assert "disagree" in raises(Exception, in_a_graph)


def check_a_function_that_one_rank_traces_again():
    one = tf.Variable(tf.ones([3]))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(one) * tf.reduce_sum(x)
        return hvd.DistributedGradientTape(tape).gradient(loss, one)
    for rows in (2, 2 + hvd.rank(), 2, 1 + hvd.rank()):  # as of a last batch
        near(step(tf.ones([rows]) * (3.0 / rows)), [3.0] * 3)


def check_a_node_that_fails_between_gradients():
    """Long gradients, each in a node of its own. TensorFlow tells of the error when all nodes that have begun have ended, and the next step is right."""
    first, second = tf.Variable(tf.ones([600, 600])), tf.Variable(tf.ones([600, 600]))

    @tf.custom_gradient
    def in_between(given, fails):
        def gradient(upstream):
            with tf.control_dependencies([tf.debugging.assert_equal(fails, 0.0)]):
                return tf.identity(upstream), None
        return tf.identity(given), gradient

    @tf.function
    def step(x, fails):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(in_between(x @ first, fails) @ second) / 600.0
        return hvd.DistributedGradientTape(tape).gradient(loss, [first, second])
    x = tf.ones([1, 600]) * (hvd.rank() + 1.0)
    for fails in (0.0, 1.0, 0.0):
        if fails:
            raises(tf.errors.InvalidArgumentError, step, x, tf.constant(fails))
        else:
            for got in step(x, tf.constant(fails)):
                near(got, np.full((600, 600), (hvd.size() + 1) / 2))


def check_a_session_that_wants_some_gradients():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [tf.compat.v1.get_variable(name, initializer=tf.ones([600, 600])) for name in ("a", "b")]
        loss = tf.add_n([tf.reduce_sum(one) for one in variables]) * (hvd.rank() + 1.0)
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
        gradients = [gradient for gradient, _ in optimizer.compute_gradients(loss, variables)]
        session.run(tf.compat.v1.global_variables_initializer())
        for wanted in (gradients, gradients[:1], gradients[1:], gradients):
            for got in session.run(wanted):
                near(got, np.full((600, 600), (hvd.size() + 1) / 2))


def check_what_is_refused():
    sgd = tf.keras.optimizers.SGD(0.1)
    for arguments in ({"op": hvd.Min}, {"gradient_predivide_factor": 0.0}, {"op": hvd.Sum, "gradient_predivide_factor": 2.0}, {"num_groups": -1},
                      {"compression": "fp16"}, {"process_set": [0]}):
        raises((ValueError, TypeError), hvd.DistributedOptimizer, sgd, **arguments)
        raises((ValueError, TypeError), hvd.DistributedGradientTape, tf.GradientTape(), **arguments)
    raises((ValueError, TypeError), hvd.DistributedOptimizer, sgd, backward_passes_per_step=0)
    raises((ValueError, TypeError), hvd.DistributedOptimizer, "sgd")
    raises((ValueError, TypeError), hvd.DistributedGradientTape, None)
    raises((ValueError, TypeError), hvd.broadcast_variables, [1.0], 0)
    raises((ValueError, TypeError), hvd.broadcast_variables, [tf.Variable("text")], 0)
    raises((ValueError, TypeError), hvk.PartialDistributedOptimizer, sgd, local_layers=["dense"])


def check_a_step_without_a_finite_gradient():
    """Only where the job says AIACC_NAN_CHECK."""
    if not os.environ.get("AIACC_NAN_CHECK"):
        return
    for eagerly in (False, True):
        model = network()
        model.compile(hvk.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), LOSS, run_eagerly=eagerly)
        before = values(model.trainable_variables)
        x, y = batch(hvd.rank())
        if hvd.rank() == hvd.size() - 1:
            x[0, 0] = np.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.train_on_batch(x, y)
        all_near(values(model.trainable_variables), before, 0)
        model.train_on_batch(*batch(hvd.rank()))
        assert any((one != other).any() for one, other in zip(values(model.trainable_variables), before))
    one = tf.Variable(1.0)
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = one * (np.nan if hvd.rank() == 0 else 1.0)
    assert "rank 0" in raises(tf.errors.OpError, tape.gradient, loss, one)


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
