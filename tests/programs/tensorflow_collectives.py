"""Horovod's TensorFlow API: collectives, eagerly and in graphs, against what numpy says."""
import sys
import threading

import numpy as np
import tensorflow as tf

import aiacc.tensorflow as hvd
from aiacc._horovod import handles
from tensorflow_checks import equal, in_both, near, raises, run

TYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64)
Disagreement = tf.errors.FailedPreconditionError


def of_rank(rank, shape=(3, 2)):
    return np.arange(np.prod(shape)).reshape(shape) % 5 + rank + 1


def everyones(shape=(3, 2)):
    return np.stack([of_rank(rank, shape) for rank in range(hvd.size())])


def mine(dtype=tf.float32, shape=(3, 2)):
    return tf.constant(of_rank(hvd.rank(), shape), dtype)


def check_who_is_who():
    assert 0 <= hvd.rank() < hvd.size() and hvd.local_size() == hvd.size() and hvd.local_rank() == hvd.rank() and hvd.is_initialized()
    got = in_both(lambda: [hvd.size_op(), hvd.rank_op(), hvd.local_size_op(), hvd.local_rank_op(), hvd.process_set_included_op()])
    assert [int(one) for one in got] == [hvd.size(), hvd.rank(), hvd.size(), hvd.rank(), 1]


def check_allreduce_of_every_type_and_op():
    for dtype in TYPES:
        got = in_both(lambda given: hvd.allreduce(given, op=hvd.Sum), mine(dtype))
        assert got.dtype == dtype
        equal(tf.cast(got, tf.float64), everyones().sum(0))
    for op, function in ((hvd.Min, np.min), (hvd.Max, np.max), (hvd.Product, np.prod), (hvd.Average, np.mean)):
        near(in_both(lambda given: hvd.allreduce(given, op=op), mine()), function(everyones(), 0))
    near(in_both(lambda given: hvd.allreduce(given, prescale_factor=2.0, postscale_factor=0.25), mine()), everyones().mean(0) / 2)
    equal(hvd.allreduce(tf.constant(hvd.rank() == 0), op=hvd.Sum), tf.constant(True))
    near(hvd.allreduce(mine(), compression=hvd.Compression.fp16), everyones().mean(0), 1e-3)
    near(hvd.allreduce(mine(), average=False), everyones().sum(0))
    for shape in ((), (0, 3), (1,)):
        equal(in_both(lambda given: hvd.allreduce(given, op=hvd.Sum), mine(shape=shape)), everyones(shape).sum(0))
    given = mine()
    hvd.allreduce(given)
    equal(given, of_rank(hvd.rank()))  # which is as it was


def check_groups():
    given = [mine(), mine(tf.int64, (2,)), mine(tf.float64, ())]
    for got, want in zip(in_both(lambda *those: hvd.grouped_allreduce(list(those), op=hvd.Sum), *given),
                         (everyones().sum(0), everyones((2,)).sum(0), everyones(()).sum(0))):
        equal(got, want)
    both = in_both(lambda: hvd.grouped_allgather([tf.fill([hvd.rank() + 1, 2], hvd.rank()), tf.fill([1], hvd.size())]))
    equal(both[0], np.concatenate([np.full((rank + 1, 2), rank) for rank in range(hvd.size())]))
    equal(both[1], [hvd.size()] * hvd.size())
    scattered = in_both(lambda *those: hvd.grouped_reducescatter(list(those), op=hvd.Sum), mine(shape=(hvd.size(), 2)), mine(tf.int32, (2 * hvd.size(),)))
    equal(scattered[0], everyones((hvd.size(), 2)).sum(0)[hvd.rank():hvd.rank() + 1])
    equal(scattered[1], everyones((2 * hvd.size(),)).sum(0)[2 * hvd.rank():2 * hvd.rank() + 2])
    assert hvd.grouped_allreduce([]) == []


def check_rows_of_all_ranks():
    parts = [(rank * 2) % 5 for rank in range(hvd.size())]
    rows = tf.constant(np.full((parts[hvd.rank()], 3), hvd.rank(), np.float32))
    equal(in_both(hvd.allgather, rows), np.concatenate([np.full((part, 3), rank) for rank, part in enumerate(parts)]))
    for root in range(hvd.size()):
        equal(in_both(lambda given: hvd.broadcast(given, root), mine()), of_rank(root))
    splits = [(hvd.rank() + peer) % 3 for peer in range(hvd.size())]
    result, received = in_both(lambda given: hvd.alltoall(given, splits), tf.fill([sum(splits), 2], float(hvd.rank())))
    counts = [(peer + hvd.rank()) % 3 for peer in range(hvd.size())]
    equal(received, counts)
    equal(result, np.concatenate([np.full((count, 2), peer) for peer, count in enumerate(counts)]))
    equal(in_both(hvd.alltoall, tf.range(hvd.size()) + 10 * hvd.rank()), [hvd.rank() + 10 * peer for peer in range(hvd.size())])
    rows = hvd.size() + 1
    begin = hvd.rank() + min(hvd.rank(), 1)
    equal(in_both(lambda given: hvd.reducescatter(given, op=hvd.Sum), mine(shape=(rows, 2))),
          everyones((rows, 2)).sum(0)[begin:begin + 1 + (hvd.rank() == 0)])


def check_shapes_that_a_graph_does_not_know():
    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32)])
    def calls(given):
        return hvd.allreduce(given, op=hvd.Sum), hvd.allgather(given), hvd.alltoall(given), hvd.broadcast(given, 0)
    for rows in (hvd.size(), 3 * hvd.size()):
        total, gathered, exchanged, root = calls(mine(shape=(rows, 2)))
        equal(total, everyones((rows, 2)).sum(0))
        equal(gathered, np.concatenate(everyones((rows, 2))))
        assert exchanged.shape == (rows, 2)
        equal(root, of_rank(0, (rows, 2)))

    shapes = []

    @tf.function
    def static(given):
        for function in (hvd.allgather, hvd.allreduce, hvd.reducescatter):
            shapes.append(tuple(function(given).shape))
    static(tf.zeros([hvd.size(), 4]))
    assert shapes == [(None, 4), (hvd.size(), 4), (1, 4)], shapes


def check_gradients():
    factor = tf.constant(np.arange(6).reshape(3, 2) + hvd.rank(), tf.float32)
    factors = np.stack([np.arange(6).reshape(3, 2) + rank for rank in range(hvd.size())])

    def of(function, given, weights):
        def gradient(given, weights):
            with tf.GradientTape() as tape:
                tape.watch(given)
                loss = tf.reduce_sum(function(given) * weights)
            return tape.gradient(loss, given)
        return in_both(gradient, given, weights)
    near(of(lambda given: hvd.allreduce(given, op=hvd.Sum), mine(), factor), factors.sum(0))
    near(of(lambda given: hvd.allreduce(given, prescale_factor=2.0), mine(), factor), 2 * factors.mean(0))
    near(of(lambda given: hvd.grouped_allreduce([given, given], op=hvd.Sum)[1], mine(), factor), factors.sum(0))
    near(of(lambda given: hvd.broadcast(given, 0), mine(), factor), factors.mean(0) if hvd.rank() == 0 else np.zeros((3, 2)))
    rows = hvd.rank() + 1
    total = sum(range(1, hvd.size() + 1))
    weights = tf.reshape(tf.range(total * 2.0), [total, 2])
    before = sum(range(1, hvd.rank() + 1))
    near(of(hvd.allgather, tf.zeros([rows, 2]), weights), weights.numpy()[before:before + rows])
    sent = tf.reshape(tf.range(2.0 * hvd.size()), [hvd.size(), 2])
    near(of(hvd.alltoall, sent + 1.0, sent), np.stack([sent.numpy()[hvd.rank()]] * hvd.size()))
    near(of(lambda given: hvd.reducescatter(given, op=hvd.Sum), tf.zeros([hvd.size(), 2]), tf.fill([1, 2], hvd.rank() + 1.0)),
         np.repeat([[hvd.size() * (rank + 1.0)] for rank in range(hvd.size())], 2, 1))

    @tf.function
    def twice(given):
        with tf.GradientTape() as outer:
            outer.watch(given)
            with tf.GradientTape() as inner:
                inner.watch(given)
                cube = hvd.allreduce(given, op=hvd.Sum) ** 3
            first = inner.gradient(cube, given)
        return outer.gradient(first, given)
    near(twice(tf.constant(1.0)), 6.0 * hvd.size() ** 3)


def check_slices():
    slices = tf.IndexedSlices(tf.fill([2, 3], hvd.rank() + 1.0), tf.constant([hvd.rank(), hvd.size()]), tf.constant([hvd.size() + 1, 3]))
    got = hvd.allreduce(slices)
    dense = np.zeros((hvd.size() + 1, 3))
    for rank in range(hvd.size()):
        dense[[rank, hvd.size()]] += (rank + 1.0) / hvd.size()
    near(tf.convert_to_tensor(got), dense)
    raises(NotImplementedError, hvd.allreduce, slices, op=hvd.Min)
    both = hvd.grouped_allreduce([slices, tf.ones([2])], op=hvd.Sum)
    near(tf.convert_to_tensor(both[0]), dense * hvd.size())
    near(both[1], [hvd.size()] * 2)


def check_nodes_in_another_order_on_each_rank():
    @tf.function
    def many():
        made = {}
        for i in np.random.RandomState(hvd.rank()).permutation(20):
            made[int(i)] = hvd.allreduce(tf.fill([5], float(i) + hvd.rank()), name=f"number {i}", op=hvd.Sum, ignore_name_scope=True)
        return [made[i] for i in range(20)]
    for _ in range(3):
        for i, got in enumerate(many()):
            near(got, np.full(5, i * hvd.size() + sum(range(hvd.size()))))


def check_functions_of_two_threads():
    @tf.function
    def one(given):
        return hvd.allreduce(given, op=hvd.Sum)

    @tf.function
    def other(given):
        return hvd.allreduce(given, op=hvd.Sum)
    functions = [(one, 1.0), (other, 100.0)]
    for function, factor in functions:
        function(tf.fill([3], factor))
    results = {}

    def call(function, factor):
        for _ in range(20):
            results[factor] = function(tf.fill([3], factor))
            near(results[factor], [factor * hvd.size()] * 3)
    threads = [threading.Thread(target=call, args=each) for each in (functions if hvd.rank() == 0 else reversed(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results) == {1.0, 100.0}
    for factor, got in results.items():
        near(got, [factor * hvd.size()] * 3)


def check_variables_and_objects():
    for variables in ([tf.Variable(mine()), tf.Variable(hvd.rank() * 7)], [tf.Variable(mine(tf.float64))]):
        hvd.broadcast_variables(variables, hvd.size() - 1)
        equal(variables[0], of_rank(hvd.size() - 1))
    one = tf.Variable(mine())
    tf.function(lambda: hvd.broadcast_variables([one], 0))()
    equal(one, of_rank(0))
    assert hvd.broadcast_([one], 0)[0] is one
    assert hvd.broadcast_object({"rank": hvd.rank()}, hvd.size() - 1) == {"rank": hvd.size() - 1}
    assert hvd.broadcast_object_fn(0)(hvd.rank()) == 0 and hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))
    assert "eager" in raises(RuntimeError, hvd.broadcast_global_variables, 0)
    near(hvd.mpi_ops._allreduce(tf.ones([2]), name="as packages call it", op=hvd.Sum), [hvd.size()] * 2)


def check_a_session_of_tensorflow_1():
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("kept", initializer=tf.constant([1.0, 2.0]) * (hvd.rank() + 1))
        total = hvd.allreduce(tf.constant([1.0, 2.0]) * (hvd.rank() + 1), op=hvd.Sum)
        hook = hvd.BroadcastGlobalVariablesHook(0)
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            near(session.run(total), np.array([1.0, 2.0]) * sum(range(1, hvd.size() + 1)))
            near(session.run(variable), [1.0, 2.0])
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        given = tf.constant([1.0, 2.0])
        near(session.run(tf.gradients(hvd.broadcast(given, 0), given)[0]), [1.0 * (hvd.rank() == 0)] * 2)
        variable = tf.compat.v1.get_variable("in_place", initializer=hvd.rank() + 1.0)
        session.run(variable.initializer)
        near(session.run(hvd.broadcast_([variable], 0)), [1.0])


def check_process_sets():
    if hvd.size() < 3:
        return
    odd = hvd.add_process_set([1])
    others = hvd.add_process_set([0, 2])
    if hvd.rank() != 1:
        near(in_both(lambda given: hvd.allreduce(given, op=hvd.Sum, process_set=others), mine()), of_rank(0) + of_rank(2))
        equal(in_both(lambda given: hvd.broadcast(given, 2, process_set=others), mine()), of_rank(2))
        assert "no member" in raises(tf.errors.InvalidArgumentError, hvd.allreduce, mine(), process_set=odd)
    else:
        near(hvd.allreduce(mine(), process_set=odd), of_rank(1))
    hvd.remove_process_set(odd)
    hvd.remove_process_set(others)


def check_a_name_that_is_in_flight():
    """As where two threads execute nodes of one name, which would get each other's results."""
    key = (0, "allreduce", "same")
    handles.take_name(key)
    call = tf.function(lambda: hvd.allreduce(mine(), op=hvd.Sum, name="same", ignore_name_scope=True))
    assert "submitted twice" in raises(tf.errors.InvalidArgumentError, call)
    handles.give_back_name(key)
    for _ in range(2):
        near(call(), everyones().sum(0))


def check_what_is_refused():
    ranks = hvd.size() > 1
    for given, words, kwargs in ((tf.ones([hvd.rank() + 2]), "type and shape", {}), (mine(tf.float32 if hvd.rank() else tf.int32), "type and shape", {}),
                                 (mine(), "op", {"op": hvd.Max if hvd.rank() else hvd.Sum})):
        if ranks:
            assert words in raises(Disagreement, hvd.allreduce, given, name="unlike", **kwargs)
            assert words in raises(Disagreement, tf.function(lambda: hvd.allreduce(given, name="unlike", **kwargs)))
    if ranks:
        assert "root rank" in raises(Disagreement, hvd.broadcast, mine(), hvd.rank(), name="root")
        assert "rows" in raises(Disagreement, hvd.allgather, tf.ones([2, 3 + hvd.rank()]), name="rows")
    raises(tf.errors.InvalidArgumentError, hvd.allgather, tf.constant(1.0))
    assert "splits" in raises(tf.errors.InvalidArgumentError, hvd.alltoall, tf.ones([4]), [5] * hvd.size())
    if ranks:
        assert "divide" in raises(tf.errors.InvalidArgumentError, hvd.alltoall, tf.ones([1]))
    assert "int32" in raises(ValueError, hvd.alltoall, tf.ones([4]), [1.0] * hvd.size())
    assert "string" in raises(ValueError, hvd.allreduce, tf.constant("text"))
    assert "Ragged" in raises(ValueError, hvd.allreduce, tf.ragged.constant([[1], [2, 3]]))
    raises(ValueError, hvd.broadcast, mine(), hvd.size())
    raises(NotImplementedError, hvd.allreduce, mine(), op=hvd.Adasum)
    near(hvd.allreduce(mine(), op=hvd.Sum), everyones().sum(0))  # nothing was left behind


def check_join():
    for _ in range(hvd.rank()):
        hvd.allreduce(tf.ones([4]), op=hvd.Sum, name="some")
    assert 0 <= hvd.join() < hvd.size()
    equal(hvd.allreduce(mine(), op=hvd.Sum), everyones().sum(0))


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
