"""Optimizers, layers, callbacks, models and states of Keras in aiacc.tensorflow, against what one process computes on the batches of all ranks."""
import pathlib
import sys
import tempfile

import numpy as np
import tensorflow as tf

import aiacc.tensorflow as hvd
import aiacc.tensorflow.keras as hvk
from tensorflow_checks import LOSS, ROWS, all_near, alone, batch, equal, near, network, raises, run, values


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


def of_second_derivatives(x, mine):
    """Of the layer, as a gradient penalty needs them, beside those of its formula. (Those of Keras's own layer leave out that the mean depends
    on the inputs.)"""
    def whole(given):
        mean = tf.reduce_mean(given, 0)
        return (given - mean) / tf.sqrt(tf.reduce_mean((given - mean) ** 2, 0) + layer.epsilon)

    weights = tf.reshape(tf.range(1.0, x.size + 1.0, dtype=tf.float64), x.shape) / x.size  # or what depends on the mean would vanish

    def penalty(function, given, factors):
        with tf.GradientTape() as outer:
            outer.watch(given)
            with tf.GradientTape() as tape:
                tape.watch(given)
                loss = tf.reduce_sum(function(given) ** 3)
            size = tf.reduce_sum(tape.gradient(loss, given) ** 2 * factors)
        return outer.gradient(size, given)
    layer = hvd.SyncBatchNormalization(epsilon=1e-3, dtype="float64")
    layer.build([None, x.shape[-1]])
    given = tf.constant(x, tf.float64)
    expected = penalty(whole, given, weights)[mine]
    for call in (penalty, tf.function(penalty)):
        near(call(lambda one: layer(one, training=True), given[mine], weights[mine]), expected, 1e-6)


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
    if hvd.size() > 1:
        of_second_derivatives(x, mine)
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
    seed, = (one for one in random.variables if one.path.endswith("seed_generator_state"))
    seed.assign([hvd.rank(), 0])
    kept = random.layers[-1].bias
    kept.assign([float(hvd.rank())])
    broadcast = hvk.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=kept)
    rates = hvk.callbacks.LearningRateScheduleCallback(0.4, 1.0, start_epoch=5)  # not yet, beside a rate that is a function
    random.fit(np.zeros((4, 5), np.float32), np.zeros((4, 1)), batch_size=4, verbose=0, callbacks=[broadcast, rates])
    near(kept, [hvd.rank() + 0.5 * (1.0 + hvd.rank())])  # as the rank's own momentum has moved it
    near(random.layers[-1].kernel, np.full((5, 1), 0.5))
    near(random.optimizer.variables[-2], np.full((5, 1), 0.5))  # momentum of rank 0, after one batch
    assert len({tuple(one) for one in hvd.allgather_object(seed.numpy().tolist())}) == hvd.size()  # no two ranks leave out the same units
    staircase = hvk.callbacks.LearningRateScheduleCallback(0.4, lambda epoch: 0.1 ** epoch, start_epoch=1)
    near(model.fit(*batch(hvd.rank()), batch_size=ROWS, epochs=3, verbose=0, callbacks=[staircase]).history["lr"], [0.4, 0.04, 0.004])
    power = hvk.callbacks.LearningRateScheduleCallback(0.4, 0.5)
    near(model.fit(*batch(hvd.rank()), batch_size=ROWS, epochs=3, verbose=0, callbacks=[power]).history["lr"], [0.4, 0.2, 0.1])
    model.optimizer.learning_rate = 1.0
    power.on_epoch_begin(1)
    power.on_batch_begin(0)  # as loops of one's own call it
    near(model.optimizer.learning_rate, 0.2)

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


def check_states():
    model = network(1 + hvd.rank())
    model.compile(hvk.DistributedOptimizer(tf.keras.optimizers.SGD(0.1, momentum=0.9), backward_passes_per_step=2), LOSS)
    state = hvk.elastic.KerasState(model, batch=0, epoch=0)
    state.sync()
    first = values(model.trainable_variables)
    all_near(hvd.broadcast_object(first), first, 0)
    callbacks = [hvk.elastic.UpdateBatchStateCallback(state), hvk.elastic.UpdateEpochStateCallback(state), hvk.elastic.CommitStateCallback(state, 2)]
    model.fit(*batch(hvd.rank(), 4 * ROWS), batch_size=ROWS, epochs=2, verbose=0, callbacks=callbacks)
    assert (state.epoch, state.batch) == (2, 0)
    committed = values(model.trainable_variables)
    assert any((one != other).any() for one, other in zip(first, committed))
    model.train_on_batch(*batch(hvd.rank()))  # half a step
    for one in model.trainable_variables:
        one.assign(tf.zeros_like(one))
    state.epoch = 7
    state.restore()
    all_near(values(model.trainable_variables), committed, 0)
    assert state.epoch == 2 and int(model.optimizer._aiacc_passes._passed) == 0

    variables = [tf.Variable(float(hvd.rank()))]
    plain = hvd.elastic.TensorFlowState(variables, step=hvd.rank())
    plain.sync()
    assert float(variables[0]) == plain.step == 0
    variables[0].assign(3.0)
    plain.restore()
    near(variables[0], 0.0)


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
