"""Horovod's MXNet API: collectives, against what numpy says."""
import sys
import warnings

import mxnet as mx
import numpy as np

import aiacc.mxnet as hvd
from mxnet_checks import equal, near, raises, run

TYPES = ("float32", "float64", "float16", "uint8", "int8", "int32", "int64")


def of_rank(rank, shape=(3, 2), dtype="float32"):
    return (np.arange(np.prod(shape)).reshape(shape) % 5 + rank + 1).astype(dtype)


def everyones(shape=(3, 2), dtype="float32"):
    return np.stack([of_rank(rank, shape, dtype) for rank in range(hvd.size())])


def array(*arguments, **keywords):
    given = of_rank(hvd.rank(), *arguments, **keywords)
    return mx.nd.array(given, dtype=given.dtype)


def check_who_is_who():
    assert 0 <= hvd.rank() < hvd.size() and hvd.local_size() == hvd.size() and hvd.local_rank() == hvd.rank()
    assert hvd.cross_size() == 1 and hvd.is_homogeneous() and hvd.is_initialized()


def check_allreduce_of_every_type_and_op():
    for dtype in TYPES:
        for name in (None, f"of {dtype}"):
            given = array(dtype=dtype)
            equal(hvd.allreduce(given, op=hvd.Sum, name=name), everyones(dtype=dtype).sum(0))
            equal(given, of_rank(hvd.rank(), dtype=dtype))
        assert hvd.allreduce(array(dtype=dtype), op=hvd.Sum).dtype == np.dtype(dtype)
    for op, function in ((hvd.Min, np.min), (hvd.Max, np.max), (hvd.Product, np.prod), (hvd.Average, np.mean)):
        near(hvd.allreduce(array(), op=op), function(everyones(), 0))
    near(hvd.allreduce(array()), everyones().mean(0))
    near(hvd.allreduce(array(), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0), everyones().sum(0) * 1.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        near(hvd.allreduce(array(), average=False), everyones().sum(0))


def check_in_place_and_groups():
    given = array()
    assert hvd.allreduce_(given, op=hvd.Sum) is given
    equal(given, everyones().sum(0))
    given = [array(), array((4,), "float64"), array((2, 2, 2))]
    expected = [everyones().sum(0), everyones((4,), "float64").sum(0), everyones((2, 2, 2)).sum(0)]
    for one, other in zip(hvd.grouped_allreduce(given, op=hvd.Sum), expected):
        equal(one, other)
    for one, other in zip(hvd.grouped_allreduce_(given, op=hvd.Sum), expected):
        equal(one, other)
    rows = mx.nd.zeros((4, 2))
    hvd.allreduce_(rows[1:3] + 1, op=hvd.Sum)
    part = rows[1:3]  # memory of `rows`
    part[:] = 1
    hvd.allreduce_(part, op=hvd.Sum)
    equal(rows, [[0, 0], [hvd.size()] * 2, [hvd.size()] * 2, [0, 0]])


def check_operations_wait_for_each_other_and_for_mxnet():
    given, last = mx.nd.ones((1000, 100)) * (hvd.rank() + 1), None
    for i in range(20):  # each needs the result of the one before, by way of MXNet
        given = given * 2
        hvd.allreduce_(given, op=hvd.Sum, name="chained" if i % 2 else None)
        given /= 2 * hvd.size()
        last = hvd.broadcast(given, i % hvd.size())
    near(given, np.full((1000, 100), (hvd.size() + 1) / 2))
    near(last, np.full((1000, 100), (hvd.size() + 1) / 2))


def check_named_allreduces_in_different_orders():
    order = list(range(8)) if hvd.rank() % 2 else list(reversed(range(8)))
    results = {i: hvd.allreduce(mx.nd.full((50,), hvd.rank() + i), op=hvd.Sum, name=f"tensor {i}") for i in order}
    for i, result in results.items():
        equal(result, np.full((50,), sum(rank + i for rank in range(hvd.size()))))


def check_results_of_convolutions():
    """oneDNN gives them a layout of its own."""
    mx.random.seed(3)
    x, w = mx.nd.random.normal(shape=(2, 16, 8, 8)), mx.nd.random.normal(shape=(32, 16, 3, 3))
    made = mx.nd.Convolution(x, w, kernel=(3, 3), num_filter=32, no_bias=True)
    expected = made.asnumpy() * hvd.size()
    for name in (None, "convolved"):
        fresh = mx.nd.Convolution(x, w, kernel=(3, 3), num_filter=32, no_bias=True)
        near(hvd.allreduce(fresh, op=hvd.Sum, name=name), expected)
        hvd.allreduce_(fresh, op=hvd.Sum, name=name)
        near(fresh, expected)


def check_allgather_and_alltoall():
    counts = [rank + 1 for rank in range(hvd.size())]
    equal(hvd.allgather(array((hvd.rank() + 1, 2))), np.concatenate([of_rank(rank, (rank + 1, 2)) for rank in range(hvd.size())]))
    one, other = hvd.grouped_allgather([array((hvd.rank() + 1, 2)), array((1,), "int64")])
    assert one.shape == (sum(counts), 2) and other.shape == (hvd.size(),)
    equal(hvd.alltoall(mx.nd.array(np.arange(hvd.size()) + 10 * hvd.rank())), np.arange(hvd.size()) * 10 + hvd.rank())
    splits = mx.nd.array(counts, dtype="int32")  # rank r gets r + 1 rows of each
    result, received = hvd.alltoall(array((sum(counts), 3)), splits)
    equal(received, np.full(hvd.size(), hvd.rank() + 1))
    begin = sum(counts[:hvd.rank()])
    equal(result, np.concatenate([of_rank(rank, (sum(counts), 3))[begin:begin + hvd.rank() + 1] for rank in range(hvd.size())]))


def check_broadcast_reducescatter_and_objects():
    for root in range(hvd.size()):
        equal(hvd.broadcast(array(), root), of_rank(root))
        given = array()
        hvd.broadcast_(given, root)
        equal(given, of_rank(root))
    rows = 2 * hvd.size() + 1  # the first rank has one more
    begin = 0 if hvd.rank() == 0 else 2 * hvd.rank() + 1
    own = everyones((rows, 2)).sum(0)[begin:begin + (3 if hvd.rank() == 0 else 2)]
    equal(hvd.reducescatter(array((rows, 2)), op=hvd.Sum), own)
    near(hvd.grouped_reducescatter([array((rows, 2)), array((rows,))])[0], own / hvd.size())
    assert hvd.broadcast_object({"rank": hvd.rank()}, hvd.size() - 1) == {"rank": hvd.size() - 1}
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))
    hvd.barrier()


def check_process_sets():
    if hvd.size() == 1:
        return
    ranks = list(range(1, hvd.size()))  # the first rank is no member
    pair = hvd.add_process_set(ranks)
    if pair.included():
        equal(hvd.allreduce(array(), op=hvd.Sum, process_set=pair), sum(of_rank(rank) for rank in ranks))
        equal(hvd.allreduce(array(), op=hvd.Sum, process_set=pair, name="of some"), sum(of_rank(rank) for rank in ranks))
        equal(hvd.broadcast(array(), 1, process_set=pair), of_rank(1))
    else:
        assert "no member" in raises(ValueError, hvd.allreduce, array(), process_set=pair)
    assert hvd.remove_process_set(pair)


def check_what_ranks_disagree_about():
    if hvd.size() == 1:
        return
    for name in (None, f"uneven {hvd.size()}"):
        result = hvd.allreduce(mx.nd.ones((2 + hvd.rank(),)), op=hvd.Sum, name=name)
        said = raises(mx.base.MXNetError, result.asnumpy)
        assert "rank" in said and ("float32', 2" in said or "uneven" in said), said
    equal(hvd.allreduce(array(), op=hvd.Sum), everyones().sum(0))
    equal(hvd.allreduce(array(), op=hvd.Sum, name="afterwards"), everyones().sum(0))
    assert "disagree" in raises(hvd.HorovodInternalError, hvd.allgather, mx.nd.ones((1, 2 + hvd.rank())))


def check_a_rank_outside_of_the_set_keeps_its_gradients():
    if hvd.size() < 3:
        return
    ends = hvd.add_process_set([0, hvd.size() - 1])
    outside = not ends.included()

    def moved(update):
        weight, gradient = mx.nd.zeros((4,)), mx.nd.full((4,), float(hvd.rank() + 1))
        update(weight, gradient)
        return -float(weight[0].asscalar())

    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0, wd=0.0), process_set=ends)
    expected = hvd.rank() + 1 if outside else (1 + hvd.size()) / 2
    assert moved(lambda weight, gradient: optimizer.update(0, weight, gradient, optimizer.create_state(0, weight))) == expected

    layer = mx.gluon.nn.Dense(1, use_bias=False, in_units=4)
    layer.initialize(mx.init.Zero())
    trainer = hvd.DistributedTrainer(layer.collect_params(), "sgd", {"learning_rate": 1.0, "wd": 0.0}, process_set=ends)
    with mx.autograd.record():
        loss = layer(mx.nd.full((1, 4), float(hvd.rank() + 1))).sum()
    loss.backward()
    trainer.step(1)
    assert -float(layer.weight.data()[0][0].asscalar()) == expected
    hvd.barrier()
    hvd.remove_process_set(ends)


def check_bad_inputs():
    assert "not an NDArray" in raises(ValueError, hvd.allreduce, [1.0])
    assert "row_sparse" in raises(ValueError, hvd.allreduce, mx.nd.ones((2, 2)).tostype("row_sparse"))
    assert "root_rank is 99" in raises(ValueError, hvd.broadcast, array(), 99)
    for kind in (ValueError, RuntimeError):  # Horovod's is the second
        assert "splits has" in raises(kind, hvd.alltoall, array(), [1] * (hvd.size() + 1))
    assert "splits are float32" in raises(ValueError, hvd.alltoall, array(), mx.nd.ones((hvd.size(),)))
    scalar = mx.nd.array(1, dtype="float32")
    assert "no rows to divide" in raises(ValueError, hvd.reducescatter, scalar)
    assert "no rows to divide" in raises(ValueError, hvd.grouped_reducescatter, [mx.nd.zeros((3, 1)), scalar])
    assert "op is 77" in raises(ValueError, hvd.allreduce, array(), op=77)
    assert "at least one" in raises(ValueError, hvd.grouped_allreduce, [])
    assert "dict of NDArrays" in raises(ValueError, hvd.broadcast_parameters, [1])
    assert "mx.optimizer.Optimizer" in raises(ValueError, hvd.DistributedOptimizer, "sgd")
    equal(hvd.allreduce(array(), op=hvd.Sum), everyones().sum(0))  # nothing is over


def check_init_after_shutdown():
    pending, expected = hvd.allreduce(array(), op=hvd.Sum), everyones().sum(0)
    hvd.shutdown()
    equal(pending, expected)
    assert "Horovod has not been initialized; use hvd.init()" in raises(ValueError, hvd.allreduce, mx.nd.ones((1,)))
    hvd.init()
    equal(hvd.allreduce(array(), op=hvd.Sum), everyones().sum(0))


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
