"""The KVStores of aiacc.mxnet, with values and optimizers on servers: every rank also computes alone what all do together."""
import os
import pathlib
import sys
import tempfile
import warnings

import mxnet as mx
import numpy as np

import aiacc.mxnet as hvd
from mxnet import autograd, gluon
from mxnet_checks import equal, mine, near, raises, run

DIGITS = pathlib.Path(os.environ["DIGITS"])


def everyones(shape):
    """What each rank pushes, as floats that add up exactly."""
    return [np.arange(np.prod(shape)).reshape(shape) % 7 + rank + 1.0 for rank in range(hvd.size())]


def pushed(shape, dtype="float32"):
    return mx.nd.array(everyones(shape)[hvd.rank()], dtype=dtype)


def pulled(store, key, shape, dtype="float32"):
    store.pull(key, out=(out := mx.nd.zeros(shape, dtype=dtype)))
    return out


def check_names():
    for name in ("dist_sync_aiacc", "dist-sync-aiacc", "dist-sync-perseus", "dist_async_aiacc", "dist-async-perseus",
                 "dist_device_sync_aiacc", "dist_sync_device_aiacc", "dist_async_device_perseus"):
        store = mx.kv.create(name)
        assert store.type == ("dist_async_aiacc" if "async" in name else "dist_sync_aiacc")
        assert (store.rank, store.num_workers, store.local_rank) == (hvd.rank(), hvd.size(), hvd.local_rank()) and isinstance(store, mx.kv.KVStore)
    assert "aiacc.mxnet has" in raises(ValueError, hvd.create, "dist_device_sync")


def check_values():
    store = hvd.create("dist-sync-aiacc")
    for key, shape, dtype in (("a", (2, 3), "float32"), ("long", (600, 700), "float32"), (3, (5,), "int64"), (4, (1, 2, 2), "float16")):
        store.init(key, mx.nd.full(shape, 5 + hvd.rank(), dtype=dtype))
        equal(pulled(store, key, shape, dtype), np.full(shape, 5))
        store.push(key, pushed(shape, dtype), priority=-1)
        equal(pulled(store, key, shape, dtype), sum(everyones(shape)))
        store.push(key, pushed(shape, dtype), op=hvd.PerseusOp.Max)
        equal(pulled(store, key, shape, dtype), everyones(shape)[-1])
        store.push(key, pushed(shape, dtype) * 2)
        equal(pulled(store, key, shape, dtype), 2 * sum(everyones(shape)))
        given = pushed(shape, dtype)
        store.pushpull(key, given)
        equal(given, sum(everyones(shape)))
        store.pushpull(key, [pushed(shape, dtype), pushed(shape, dtype)], out=[(one := given.copy()), (other := given.astype("float64"))])
        equal(one, 2 * sum(everyones(shape))), equal(other, one)
    store.broadcast(["b", "c"], [mx.nd.ones((2,)) * hvd.rank(), mx.nd.ones((3,))], out=[(b := mx.nd.ones((2,))), (c := mx.nd.zeros((3,)))])
    equal(b, [0, 0]), equal(c, [1, 1, 1])


def check_that_operations_end_in_any_order():
    """Rank 0 begins with the one that the others begin last, when they have the results of the others."""
    store, shape = hvd.create("dist-sync-aiacc"), (1000,)
    priorities = {"late": 0, "one": -1, "other": 3}
    store.init(list(priorities), [mx.nd.zeros(shape)] * 3)
    for _ in range(3):
        for key in ("late", "one", "other") if hvd.rank() == 0 else ("one", "other", "late"):
            store.pushpull(key, (given := pushed(shape)), priority=priorities[key])
            if key == "late":
                late = given
            else:
                equal(given, sum(everyones(shape)))
        equal(late, sum(everyones(shape)))


def check_what_is_no_parameter():
    """As Perseus's scripts agree on numbers."""
    for mode in ("sync", "async"):
        store = hvd.create(f"dist-{mode}-perseus")
        store.set_optimizer(mx.optimizer.SGD())
        store.init([7, 8], [mx.nd.zeros((1,), dtype="int64")] * 2, param_only=1)
        for op, expected in ((hvd.PerseusOp.Max, hvd.size() - 1), (hvd.PerseusOp.Sum, sum(range(hvd.size())))):
            store.push(7, mx.nd.array([hvd.rank()], dtype="int64"), op=op)
            equal(pulled(store, 7, (1,), "int64"), [expected])
        store.pushpull(8, (given := mx.nd.array([hvd.rank()], dtype="int64")))
        equal(given, [sum(range(hvd.size()))])


def check_rows():
    store, size = hvd.create("dist_sync_aiacc"), hvd.size()
    shape, start = (6, 2), np.arange(12.0).reshape(6, 2)
    store.init("rows", mx.nd.array(start).tostype("row_sparse"))
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0.5))
    gradient = mx.nd.sparse.row_sparse_array((np.full((2, 2), hvd.rank() + 1.0), [1, 5 if hvd.rank() else 4]), shape=shape, dtype="float32")
    store.push("rows", [gradient, gradient])
    expected = start.copy()
    for rank in range(size):
        expected[[1, 5 if rank else 4]] -= rank + 1
    equal(pulled(store, "rows", shape), expected)
    out = mx.nd.sparse.zeros("row_sparse", shape)
    store.row_sparse_pull("rows", out=out, row_ids=mx.nd.array([4, 1, 4]))
    equal(out.indices, [1, 4]), equal(out.data, expected[[1, 4]])
    more = [mx.nd.sparse.zeros("row_sparse", shape) for _ in range(2)]
    store.row_sparse_pull(["rows"], out=[more], row_ids=[[mx.nd.array([0]), mx.nd.array([5, 3])]])
    equal(more[0].data, expected[[0]]), equal(more[1].tostype("default"), np.where(np.isin(np.arange(6), [3, 5])[:, None], expected, 0))
    store.pull("rows", out=[out], ignore_sparse=False)
    equal(out.indices, range(6)), equal(out.data, expected)
    store.push("rows", mx.nd.sparse.zeros("row_sparse", shape) if hvd.rank() else gradient)
    expected[[1, 4]] -= 0.5
    equal(pulled(store, "rows", shape), expected)
    assert "row_ids" in raises(ValueError, store.row_sparse_pull, "rows", out=out)
    assert "it is row_sparse" in raises(ValueError, store.row_sparse_pull, "rows", out=mx.nd.zeros(shape), row_ids=mx.nd.array([0]))
    assert "row 6 of key 'rows'" in raises(mx.base.MXNetError, store.row_sparse_pull, "rows", out=out, row_ids=mx.nd.array([6]))


def check_compression():
    store, size = hvd.create("dist_sync_aiacc"), hvd.size()
    store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    store.init("w", mx.nd.zeros((2,)))
    store.pushpull("w", mx.nd.array([0.75, 0.25]), out=(out := mx.nd.zeros((2,))))
    equal(out, [0.5 * size, 0])
    store.push("w", mx.nd.array([0, 0.25]))  # what was left is sent
    equal(pulled(store, "w", (2,)), [0, 0.5 * size])
    store.set_gradient_compression({"type": "fp16"})
    store.push("w", mx.nd.array([1 + 2.0 ** -12, 3]))
    equal(pulled(store, "w", (2,)), [size, 3 * size])
    store.set_gradient_compression({"type": "none"})
    store.push("w", mx.nd.array([1 + 2.0 ** -12, 3]))
    equal(pulled(store, "w", (2,)), [(1 + 2.0 ** -12) * size, 3 * size])
    assert "one of 2bit" in raises(ValueError, store.set_gradient_compression, {"type": "3bit"})


OPTIMIZERS = [("sgd", {"momentum": 0.9, "wd": 0.01, "rescale_grad": 0.5, "clip_gradient": 2.0}, True), ("sgd", {}, True), ("adam", {"wd": 0.01}, True),
              ("nag", {"momentum": 0.9}, False), ("rmsprop", {}, False), ("adagrad", {}, False), ("ftrl", {}, False),
              ("sgd", {"momentum": 0.9, "lr_scheduler": mx.lr_scheduler.FactorScheduler(1, 0.5, base_lr=0.1)}, False)]


def check_optimizers_on_servers():
    """They do what MXNet's own do with the sum of the pushes."""
    values = {"w": (3, 4), 1: (7,), "long": (600, 300)}  # the last one is in two parts
    for name, settings, in_library in OPTIMIZERS:
        store, alone = hvd.create("dist_sync_aiacc"), mx.optimizer.get_updater(mx.optimizer.create(name, learning_rate=0.1, **settings))
        store.set_optimizer(mx.optimizer.create(name, learning_rate=0.1, **settings))
        assert (store._on_server is None) == in_library
        expected = {key: mx.nd.array(np.sin(np.arange(np.prod(shape)).reshape(shape))) for key, shape in values.items()}
        store.init(list(values), list(expected.values()))
        for step in range(3):
            for key, shape in values.items():
                alone(key, mx.nd.array(sum(everyones(shape))) * (step + 1), expected[key])
                store.pushpull(key, pushed(shape) * (step + 1), out=(out := mx.nd.zeros(shape)))
                near(out, expected[key], 2e-6)


def check_learning_rates_of_parameters():
    for settings, expected in (({}, -0.5), ({"lr_mult": 0.5}, -0.25)):
        parameter = gluon.Parameter("p", shape=(2,), init="zeros", **settings)
        parameter.initialize()
        optimizer = mx.optimizer.SGD(learning_rate=0.5, param_dict={0: parameter})
        store = hvd.create()
        store.set_optimizer(optimizer)
        store.init(0, parameter.data())
        store.pushpull(0, mx.nd.ones((2,)), out=(out := mx.nd.zeros((2,))))
        equal(out, [expected * hvd.size()] * 2)
        optimizer.set_learning_rate(1.0)
        store.pushpull(0, mx.nd.ones((2,)), out=out)
        equal(out, [3 * expected * hvd.size()] * 2)


def check_half_precision():
    store = hvd.create()
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9, multi_precision=True))
    store.init("half", mx.nd.ones((3,), dtype="float16"))
    for _ in range(2):
        store.push("half", mx.nd.ones((3,), dtype="float16") * 2.0 ** -11)
    near(pulled(store, "half", (3,), "float16"), np.float16(1 - 0.5 * hvd.size() * 2.0 ** -11 * 2.9) * np.ones(3))
    other = hvd.create()
    other.set_optimizer(mx.optimizer.SGD())
    assert "multi_precision=True" in raises(ValueError, other.init, "half", mx.nd.ones((3,), dtype="float16"))


def check_updater_of_the_program():
    store = hvd.create()
    store.init("w", mx.nd.ones((2, 2)))

    def update(key, gradient, value):
        assert key == "w" and gradient.shape == (2, 2)
        value += gradient * 2
    store.set_updater(update)
    for step in range(1, 6):
        store.push("w", mx.nd.ones((2, 2)))
        given = hvd.allreduce(mx.nd.ones((2, 2)), op=hvd.Sum, name="beside")
        equal(pulled(store, "w", (2, 2)), np.full((2, 2), 1 + 2 * step * hvd.size()))
        equal(given, np.full((2, 2), hvd.size()))


def check_states():
    for name, settings in (("sgd", {"momentum": 0.9}), ("adam", {}), ("rmsprop", {})):
        with tempfile.TemporaryDirectory() as folder:
            path = hvd.broadcast_object(f"{folder}/states", 0)
            store = hvd.create()
            store.set_optimizer(mx.optimizer.create(name, learning_rate=0.1, **settings))
            store.init("w", mx.nd.ones((5,)))
            store.push("w", pushed((5,)))
            store.save_optimizer_states(path, dump_optimizer=True)
            store.push("w", pushed((5,)) * 2)
            expected = pulled(store, "w", (5,))
            again = hvd.create()
            again.set_optimizer(mx.optimizer.create(name, learning_rate=0.1, **settings))
            again.init("w", mx.nd.zeros((5,)))
            again.load_optimizer_states(path)
            assert again._updater.optimizer.lr == 0.1
            again.push("w", pushed((5,)) * 2)
            equal(pulled(again, "w", (5,)), expected)
            hvd.barrier()
    assert "set_optimizer" in raises(ValueError, hvd.create().save_optimizer_states, "nowhere")


def check_each_push_at_once():
    store, steps = hvd.create("dist_async_aiacc"), 10 * (hvd.rank() + 1)  # ranks push as often as they like
    store.init("w", mx.nd.zeros((4,)))
    assert "call set_optimizer first" in raises(ValueError, store.push, "w", mx.nd.ones((4,)))
    optimizer = mx.optimizer.SGD(learning_rate=0.5)
    store.set_optimizer(optimizer)
    for _ in range(steps):
        store.push("w", mx.nd.ones((4,)))
    store.barrier()
    total = sum(10 * (rank + 1) for rank in range(hvd.size()))
    equal(pulled(store, "w", (4,)), np.full((4,), -0.5 * total))
    store.barrier()
    store.pushpull("w", mx.nd.zeros((4,)), out=(out := mx.nd.zeros((4,))))
    equal(out, np.full((4,), -0.5 * total))
    store.barrier()
    optimizer.set_learning_rate(0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store.push("w", mx.nd.ones((4,))), store.push("w", mx.nd.ones((4,)))
    assert len([one for one in caught if "call set_optimizer on all ranks" in str(one.message)]) == 1
    store.barrier()


def check_what_is_refused():
    store = hvd.create()
    store.init("a", mx.nd.ones((2,)))
    assert "not been initialised" in raises(ValueError, store.push, "b", mx.nd.ones((2,)))
    assert "initialised before" in raises(ValueError, store.init, "a", mx.nd.ones((2,)))
    assert "is pushed" in raises(ValueError, store.push, "a", mx.nd.ones((3,)))
    assert "out is (3,)" in raises(ValueError, store.pull, "a", mx.nd.ones((3,)))
    assert "row_sparse" in raises(ValueError, store.pushpull, "a", mx.nd.ones((2, 1)).tostype("row_sparse"))
    assert "mx.optimizer.Optimizer" in raises(ValueError, store.set_optimizer, "sgd")
    if hvd.size() > 1:
        if hvd.rank() == 0:
            store.init("uneven", mx.nd.ones((3,)))
        else:
            assert "on rank 0" in raises(RuntimeError, store.init, "uneven", mx.nd.ones((3 + hvd.rank(),)))
    equal(pulled(store, "a", (2,)), [1, 1])


# --- an embedding of the digits' pixels

def tokens():
    """Of each image the number of each pixel that is not white: a word for each place and shade; 0 for the rest."""
    pixels = np.array([[int(one, 17) for one in line.split()[0]] for line in DIGITS.read_text().splitlines()])
    return np.where(pixels > 0, np.arange(64) * 16 + pixels, 0), np.array([int(line.split()[1]) for line in DIGITS.read_text().splitlines()])


EACH_STEP = 24  # images, of all ranks


class Words(gluon.Block):
    """The sum of an image's words is its logits."""

    def __init__(self, sparse_weight):
        super().__init__()
        layer = gluon.contrib.nn.SparseEmbedding(1025, 10) if sparse_weight else gluon.nn.Embedding(1025, 10, sparse_grad=True)
        self.words = layer

    def forward(self, x):
        return self.words(x).sum(axis=1)


def learn(optimizer, settings, kvstore, x, y, sparse_weight, steps=6):
    mx.random.seed(1)
    model = Words(sparse_weight)
    model.initialize(mx.init.Uniform(0.1))
    # A sparse weight is pulled before the first step, and the store has its optimizer then.
    trainer = gluon.Trainer(model.collect_params(), optimizer, {**settings, "rescale_grad": 1 / EACH_STEP}, kvstore=kvstore)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    share = EACH_STEP // hvd.size() if "aiacc" in kvstore else EACH_STEP
    parts = [share] * hvd.size()
    for step in range(steps):
        batch = slice(step * EACH_STEP, (step + 1) * EACH_STEP)
        of_rank = (mine(x[batch], parts), mine(y[batch], parts)) if "aiacc" in kvstore else (x[batch], y[batch])
        with autograd.record():
            loss = loss_of(model(mx.nd.array(of_rank[0])), mx.nd.array(of_rank[1]))
        loss.backward()
        trainer.step(1)
    if "async" in kvstore:
        trainer._kvstore.barrier()
        return pulled(trainer._kvstore, 0, (1025, 10))  # with what all have pushed
    weight = model.words.weight
    return weight.row_sparse_data(mx.nd.arange(1025)).tostype("default") if sparse_weight else weight.data()


def check_an_embedding_of_row_sparse_gradients():
    if EACH_STEP % hvd.size():
        return
    x, y = tokens()
    for sparse_weight in (False, True):
        for optimizer, settings in (("sgd", {"learning_rate": 0.01, "momentum": 0.9}), ("adam", {"learning_rate": 0.01}), ("adagrad", {"learning_rate": 0.01})):
            alone = learn(optimizer, settings, "local", x, y, sparse_weight)
            near(learn(optimizer, settings, "dist_sync_aiacc", x, y, sparse_weight), alone, 1e-5)


def check_an_embedding_learns_from_each_ranks_rows_at_once():
    if EACH_STEP % hvd.size():
        return
    x, y = tokens()
    for optimizer in ("adam", "adagrad"):  # in the library, and in Python
        weight = learn(optimizer, {"learning_rate": 0.02}, "dist_async_aiacc", x, y, False, steps=30).asnumpy()
        logits = weight[x[-200:]].sum(1)  # of images that it has not seen
        assert (logits.argmax(1) == y[-200:]).mean() > 0.4, optimizer


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
