"""Gradients, optimizers, layers and callbacks of aiacc.tensorflow, against what one process computes on the batches of all ranks."""
import os
import pathlib
import sys
import tempfile
import warnings

import numpy as np
import tensorflow as tf

import aiacc.tensorflow as hvd
import aiacc.tensorflow.keras as hvk
from tensorflow_checks import equal, near, raises, run

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


def check_optimizers_of_keras():
    for make in (lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9), lambda: tf.keras.optimizers.Adam(0.01), lambda: tf.keras.optimizers.AdamW(0.01, clipnorm=1.0)):
        want = alone(3, make())
        for eagerly in (False, True):
            model = network()
            optimizer = hvk.DistributedOptimizer(make())
            assert isinstance(optimizer, type(make())) and type(optimizer).__name__ == type(make()).__name__
            model.compile(optimizer, LOSS, run_eagerly=eagerly)
            for number in range(3):
                model.train_on_batch(*batch(hvd.rank(), seed=number))
            all_near(values(model.trainable_variables), want, 1e-4)
            assert int(optimizer.iterations) == 3


def check_several_passes_a_step():
    for averages in (True, False):
        want = alone(2, tf.keras.optimizers.SGD(0.1 if averages else 0.2), rows=2 * ROWS)
        for eagerly in (False, True):
            model = network()
            model.compile(hvk.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), backward_passes_per_step=2, average_aggregated_gradients=averages), LOSS,
                          run_eagerly=eagerly)
            for number in range(2):
                x, y = batch(hvd.rank(), 2 * ROWS, number)
                for part in (slice(0, ROWS), slice(ROWS, None)):
                    model.train_on_batch(x[part], y[part])
            all_near(values(model.trainable_variables), want)
            assert int(model.optimizer.iterations) == 4  # as with Horovod


def check_several_steps_in_a_graph():
    want = alone(6, tf.keras.optimizers.SGD(0.1))
    model = network()
    model.compile(hvk.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), LOSS, steps_per_execution=3)
    x, y = (np.concatenate(parts) for parts in zip(*(batch(hvd.rank(), seed=number) for number in range(6))))
    model.fit(x, y, batch_size=ROWS, shuffle=False, verbose=0)
    all_near(values(model.trainable_variables), want)


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


def check_local_variables_of_an_optimizer():
    model = network()
    optimizer = hvk.PartialDistributedOptimizer(tf.keras.optimizers.SGD(0.1), local_layers=[model.layers[-1]], scale_local_gradients=False)
    model.compile(optimizer, LOSS)
    model.train_on_batch(*batch(hvd.rank()))
    kept, shared = values(model.layers[-1].variables), values(model.layers[0].variables)
    theirs = hvd.allgather_object((kept, shared))
    for _, other in theirs:
        all_near(other, shared, 0)
    if hvd.size() > 1:
        assert any((np.abs(one - own) > 1e-4).any() for other, _ in theirs for one, own in zip(other, kept))


def check_float16_with_a_scaled_loss():
    def plain():
        return tf.keras.optimizers.SGD(0.1)
    scaled = tf.keras.mixed_precision.LossScaleOptimizer
    for make in (lambda: hvk.DistributedOptimizer(plain()), lambda: scaled(hvk.DistributedOptimizer(plain())), lambda: hvk.DistributedOptimizer(scaled(plain()))):
        tf.keras.mixed_precision.set_dtype_policy("mixed_float16")
        try:
            model = network()
            model.compile(make(), LOSS)
            assert isinstance(model.optimizer, scaled)  # Keras wraps those that are not
            for number in range(2):
                model.train_on_batch(*batch(hvd.rank(), seed=number))
            before = values(model.trainable_variables)
            x, y = batch(hvd.rank())
            if hvd.rank() == hvd.size() - 1:
                x[0, 0] = np.inf  # all ranks leave out the step
            model.train_on_batch(x, y)
            all_near(values(model.trainable_variables), before, 0)
        finally:
            tf.keras.mixed_precision.set_dtype_policy("float32")
        all_near(before, alone(2, plain()), 5e-3)
    tf.keras.mixed_precision.set_dtype_policy("mixed_float16")
    try:
        weight, optimizer = tf.Variable(1.0), hvk.DistributedOptimizer(plain())  # in a loop of one's own nothing is scaled
        optimizer.apply_gradients([(tf.constant(2.0), weight)])
        near(weight, 0.8)
    finally:
        tf.keras.mixed_precision.set_dtype_policy("float32")


@tf.keras.utils.register_keras_serializable(package="checks")
class Own(tf.keras.optimizers.SGD):
    """Of a program."""


def check_what_programs_do_with_optimizers():
    optimizer = hvk.DistributedOptimizer(Own(0.1, momentum=0.5))
    model = network()
    model.compile(optimizer, LOSS)
    model.train_on_batch(*batch(hvd.rank()))
    hvd.broadcast_variables(optimizer.variables(), 0)  # as of Keras 2
    hvd.broadcast_variables(optimizer.variables, 0)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/own.keras")
        assert type(tf.keras.models.load_model(f"{folder}/own.keras").optimizer) is Own
        assert isinstance(hvk.load_model(f"{folder}/own.keras").optimizer, Own)
    both = hvk.DistributedOptimizer(tf.keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), backward_passes_per_step=2)
    model = network()
    model.compile(both, LOSS)
    for _ in range(4):
        model.train_on_batch(*batch(hvd.rank()))
    partial = hvk.PartialDistributedOptimizer(tf.keras.optimizers.SGD(0.1), None, "", "", hvd.Compression.fp16, True, 2.0)
    partial.apply_gradients([(tf.constant(1.0), tf.Variable(1.0))])
    if hvd.size() > 1:  # an error in the pass that reduces; the next passes are a step again
        weight, passes = tf.Variable(1.0), hvk.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), backward_passes_per_step=2)
        unlike = tf.Variable(tf.ones([2 + hvd.rank()]))
        for _ in range(2):
            try:
                passes.apply_gradients([(tf.constant(1.0), weight), (tf.ones_like(unlike), unlike)])
                failed = False
            except tf.errors.OpError:
                failed = True
        assert failed and int(passes._aiacc_passes._passed) == 0
        near(weight, 1.0)


def check_batch_normalisation():
    rows = [2 * rank + 1 for rank in range(hvd.size())]
    total = sum(rows)
    for shape, axis in (((3, 4, 2), -1), ((2, 3, 4), 1), ((2,), -1)):
        x = (np.random.RandomState(4).randn(total, *shape) * 3 + 1000).astype(np.float32)
        weights = np.random.RandomState(5).randn(*x.shape).astype(np.float32)
        begin = sum(rows[:hvd.rank()])
        mine = slice(begin, begin + rows[hvd.rank()])
        results = []
        for layer, given, factor in ((hvd.SyncBatchNormalization(axis=axis), x[mine], weights[mine]), (tf.keras.layers.BatchNormalization(axis=axis), x, weights)):
            given = tf.constant(given)

            @tf.function
            def forward_and_back(given, layer=layer, factor=factor):
                with tf.GradientTape() as tape:
                    tape.watch(given)
                    out = layer(given, training=True)
                    loss = tf.reduce_sum(out * factor)
                return out, *tape.gradient(loss, [given, layer.gamma])
            layer.build(given.shape)
            results.append([*forward_and_back(given), *values(layer.non_trainable_variables)])
        (out, back, gamma, *moving), (all_out, all_back, all_gamma, *all_moving) = results
        near(out, all_out.numpy()[mine], 2e-3 if hvd.size() > 1 else 1e-3)
        near(back, all_back.numpy()[mine], 2e-3)
        near(hvd.allreduce(gamma, op=hvd.Sum), all_gamma, 2e-3)
        near(moving[0], all_moving[0], 1e-5)
        near(moving[1], all_moving[1], 1e-3)
    mask = tf.constant([[True, True, hvd.rank() == 0]] * 2)
    given = tf.constant(np.random.RandomState(hvd.rank()).randn(2, 3, 4), tf.float32)
    seen = np.concatenate([one[np.array(its)] for one, its in hvd.allgather_object((given.numpy(), mask.numpy()))])
    layer = hvd.SyncBatchNormalization(epsilon=1e-6)
    layer.build(given.shape)

    @tf.function(input_signature=[tf.TensorSpec([None, 3, 4], tf.float32), tf.TensorSpec([None, 3], tf.bool)])
    def masked(given, mask):
        return layer(given, training=True, mask=mask)
    near(masked(given, mask), (given.numpy() - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-6), 1e-4)
    near(hvd.SyncBatchNormalization()(tf.ones([2, 3])), tf.keras.layers.BatchNormalization()(tf.ones([2, 3])))
    assert "fused" in raises(ValueError, hvd.SyncBatchNormalization, fused=True)


def check_callbacks_and_saved_models():
    model = network(1 + hvd.rank())
    optimizer = hvk.DistributedOptimizer(tf.keras.optimizers.SGD(0.4, momentum=0.5))
    model.compile(optimizer, LOSS, metrics=["accuracy"])
    callbacks = [hvk.callbacks.BroadcastGlobalVariablesCallback(0), hvk.callbacks.MetricAverageCallback(),
                 hvk.callbacks.LearningRateWarmupCallback(0.4, warmup_epochs=2)]
    history = model.fit(*batch(hvd.rank(), 8 * ROWS), batch_size=ROWS, epochs=3, verbose=0, callbacks=callbacks).history
    assert hvd.allgather_object(history) == [history] * hvd.size()
    logs = {"loss": float(hvd.rank()), "each": np.arange(3.0) + hvd.rank()}
    hvk.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    near(logs["loss"], (hvd.size() - 1) / 2)
    near(logs["each"], np.arange(3.0) + (hvd.size() - 1) / 2)
    for other in hvd.allgather_object(values(model.trainable_variables)):
        all_near(other, values(model.trainable_variables), 0)
    near(history["lr"], [0.4 / hvd.size() * (1 + (hvd.size() - 1) / 2), 0.4, 0.4])
    random = tf.keras.Sequential([tf.keras.layers.Input((5,)), tf.keras.layers.Dropout(0.5), tf.keras.layers.Dense(1, kernel_initializer=tf.keras.initializers.Constant(hvd.rank()))])
    random.compile(tf.keras.optimizers.SGD(lambda: 0.0, momentum=0.5), "mse")
    random.optimizer.build(random.trainable_variables)
    for one in random.optimizer.variables[-2:]:
        one.assign(tf.fill(one.shape, 1.0 + hvd.rank()))
    seeds = [one.numpy().tolist() for one in random.variables if one.path.endswith("seed_generator_state")]
    kept = random.layers[-1].bias
    kept.assign([float(hvd.rank())])
    broadcast = hvk.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=kept)
    rates = hvk.callbacks.LearningRateScheduleCallback(0.4, 1.0, start_epoch=5)  # not yet, beside a rate that is a function
    random.fit(np.zeros((4, 5), np.float32), np.zeros((4, 1)), batch_size=4, verbose=0, callbacks=[broadcast, rates])
    near(kept, [hvd.rank() + 0.5 * (1.0 + hvd.rank())])  # as the rank's own momentum has moved it
    near(random.layers[-1].kernel, np.full((5, 1), 0.5))
    near(random.optimizer.variables[-2], np.full((5, 1), 0.5))  # momentum of rank 0, after one batch
    assert len(seeds) == 1
    staircase = hvk.callbacks.LearningRateScheduleCallback(0.4, lambda epoch: 0.1 ** epoch, start_epoch=1)
    near(model.fit(*batch(hvd.rank()), batch_size=ROWS, epochs=3, verbose=0, callbacks=[staircase]).history["lr"], [0.4, 0.04, 0.004])
    power = hvk.callbacks.LearningRateScheduleCallback(0.4, 0.5)
    near(model.fit(*batch(hvd.rank()), batch_size=ROWS, epochs=3, verbose=0, callbacks=[power]).history["lr"], [0.4, 0.2, 0.1])

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(hvd.broadcast_object(folder)) / "saved.keras"
        if hvd.rank() == 0:
            model.save(path)
        hvd.broadcast_object(None)
        loaded = hvk.load_model(path)
        equal(loaded.optimizer.iterations, optimizer.iterations)
        assert "already" in raises(ValueError, hvk.DistributedOptimizer, loaded.optimizer)
        for one in (model, loaded):
            one.train_on_batch(*batch(hvd.rank()))
        all_near(values(loaded.trainable_variables), values(model.trainable_variables))
        plain = tf.keras.models.load_model(path)
        assert type(plain.optimizer) is tf.keras.optimizers.SGD
        hvd.broadcast_object(None)  # rank 0's folder goes behind it
    equal(hvk.allreduce([1.0, hvd.rank()], op=hvk.Sum), [hvd.size(), sum(range(hvd.size()))])
    equal(hvk.allgather([hvd.rank()]), range(hvd.size()))
    equal(hvk.broadcast(hvd.rank(), hvd.size() - 1), hvd.size() - 1)


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

    @tf.function
    def at_once(x):
        return [step(x) for _ in range(3)]
    if hvd.size() > 1:
        assert "submitted twice" in raises(tf.errors.OpError, at_once, tf.ones([2]))


def check_an_optimizer_that_only_some_ranks_have_built():
    """As where rank 0 has loaded a checkpoint. Keras traces the step twice on the others."""
    model, optimizer = network(), tf.keras.optimizers.SGD(0.1, momentum=0.9)
    if hvd.rank() == 0:
        optimizer.build(model.trainable_variables)
    optimizer = hvk.DistributedOptimizer(optimizer)
    model.compile(optimizer, LOSS)
    for number in range(3):
        model.fit(*batch(hvd.rank(), seed=number), batch_size=ROWS, verbose=0)
    all_near(values(model.trainable_variables), alone(3, tf.keras.optimizers.SGD(0.1, momentum=0.9)))
    copied = type(optimizer).from_config(optimizer.get_config())
    assert hasattr(type(copied), "_aiacc_wrapped") and not copied.built
    model.compile(copied, LOSS)
    model.train_on_batch(*batch(hvd.rank()))
    all_near(hvd.broadcast_object(values(model.trainable_variables)), values(model.trainable_variables), 0)


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
