"""KVStore of tensors: what one process has after the same steps."""
import os
import sys
import tempfile

import torch

import aiacc.torch as hvd
from aiacc.torch.kvstore import Mode, Update, Wire
from torch_checks import close, equal, raises, run


def everyones(shape, step=0):
    """What each rank pushes, as floats that add up exactly."""
    return [torch.arange(torch.Size(shape).numel()).reshape(shape) % 5 + float(rank + step) for rank in range(hvd.size())]


def mine(shape, step=0):
    return everyones(shape, step)[hvd.rank()]


def check_sums():
    store = hvd.KVStore()
    assert store.type == "dist_sync_aiacc" and (store.rank, store.num_workers) == (hvd.rank(), hvd.size())
    for key, shape in (("a", (3, 2)), (7, (5,)), ("long", (300, 1000)), ("empty", (0, 4))):
        equal(store.broadcast(key, torch.full(shape, float(hvd.rank()))), torch.zeros(shape))
        store.push(key, mine(shape))
        equal(store.pull(key), sum(everyones(shape)))
        given = mine(shape, 1)
        assert store.pushpull(key, given, out=given) is given
        equal(given, sum(everyones(shape, 1)))
        first, out = store.push(key, mine(shape, 2), wait=False), torch.empty(shape)
        second = store.pull(key, out=out, priority=1, wait=False)
        first.wait(), second.wait()
        equal(out, sum(everyones(shape, 2)))
    store.init("transposed", mine((2, 3)).t())
    equal(store.pull("transposed"), everyones((2, 3))[0].t().contiguous())
    store.free()


def check_types_and_wires():
    store = hvd.KVStore()
    for key, dtype in enumerate((torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.uint8)):
        store.init(key, torch.ones(4, dtype=dtype))
        equal(store.pushpull(key, torch.full((4,), 2, dtype=dtype)), torch.full((4,), 2 * hvd.size(), dtype=dtype))
    store.init("w", torch.zeros(2))
    store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    equal(store.pushpull("w", torch.tensor([0.75, 0.25])), torch.tensor([0.5 * hvd.size(), 0]))
    equal(store.pushpull("w", torch.tensor([0.0, 0.25])), torch.tensor([0, 0.5 * hvd.size()]))
    store.free()
    half = hvd.KVStore(wire=Wire.FLOAT16)
    half.init("w", torch.zeros(2))
    equal(half.pushpull("w", torch.tensor([1 + 2.0 ** -12, 3])), torch.tensor([1.0, 3]) * hvd.size())
    half.free()


def check_optimizers_equal_torchs():
    shape = (4, 3)
    for kind, settings, alone in ((Update.SGD, {"rate": 0.1, "momentum": 0.9, "weight_decay": 0.01}, lambda w: torch.optim.SGD([w], 0.1, 0.9, weight_decay=0.01)),
                                  (Update.ADAM, {"rate": 0.01}, lambda w: torch.optim.Adam([w], 0.01))):
        store, weight = hvd.KVStore(), torch.linspace(-1, 1, 12).reshape(shape).requires_grad_()
        store.set_optimizer(kind, **settings)
        store.init("w", weight)
        optimizer = alone(weight)
        for step in range(4):
            weight.grad = sum(everyones(shape, step))
            optimizer.step()
            # torch's momentum has the rate outside of it, which is the same while the rate is.
            close(store.pushpull("w", mine(shape, step)), weight.detach(), 2e-5)
        store.free()


def check_rows_and_sparse_gradients():
    store, start = hvd.KVStore(), torch.arange(12.0).reshape(6, 2)
    store.set_optimizer(Update.SGD, rate=0.5)
    store.init("rows", start)
    rows = torch.tensor([1, 5 if hvd.rank() else 4, 1])
    gradient = torch.sparse_coo_tensor(rows[None], torch.full((3, 2), float(hvd.rank() + 1)), (6, 2))
    store.push("rows", gradient)
    expected = start.clone()
    for rank in range(hvd.size()):
        expected[1] -= rank + 1
        expected[5 if rank else 4] -= (rank + 1) / 2
    equal(store.pull("rows"), expected)
    equal(store.row_sparse_pull("rows", row_ids=[4, 1, 4]), expected[[4, 1, 4]])
    out = torch.empty(2, 2)
    store.row_sparse_pull("rows", out, torch.tensor([0, 5]), wait=False).wait()
    equal(out, expected[[0, 5]])
    store.row_sparse_push("rows", [], torch.empty(0, 2))
    equal(store.pull("rows"), expected)
    store.free()


def check_an_embedding_on_the_servers_learns_as_one_process():
    """Rows are pulled before the layers, and backward pushes their gradients."""
    torch.manual_seed(3)
    table, labels = torch.randn(50, 4, dtype=torch.float64), torch.randint(0, 50, (5, 2 * hvd.size(), 3))
    whole = table.clone().requires_grad_()
    optimizer = torch.optim.SGD([whole], lr=0.1)
    store = hvd.KVStore(servers=[hvd.size() - 1])
    store.set_optimizer(Update.SGD, rate=0.1)
    store.init("table", table)
    for words in labels:
        optimizer.zero_grad()
        whole[words].pow(2).sum(1).sin().sum().backward()
        optimizer.step()
        own = store.lookup("table", words[2 * hvd.rank():][:2])
        assert own.shape == (2, 3, 4)
        own.pow(2).sum(1).sin().sum().backward()
        close(store.pull("table"), whole.detach(), 1e-12)
    store.free()


def check_each_push_at_once_and_bounded():
    for mode in (Mode.ASYNC, Mode.BOUNDED):
        store = hvd.KVStore(mode, staleness=2 if mode == Mode.BOUNDED else 0)
        store.set_optimizer(Update.SUM)
        store.init("n", torch.zeros(3, dtype=torch.int64))
        for step in range(10):
            store.push("n", torch.ones(3, dtype=torch.int64))
            assert step + 1 <= store.pull("n")[0] <= 10 * hvd.size()
        store.barrier()
        equal(store.pull("n"), torch.full((3,), 10 * hvd.size()))
        store.free()


def check_states():
    with tempfile.TemporaryDirectory() as folder:
        path = hvd.broadcast_object(os.path.join(folder, "states"), 0)
        results = []
        store = hvd.KVStore()
        store.set_optimizer(Update.ADAM)
        store.init("w", torch.ones(5))
        store.push("w", mine((5,)))
        store.save_optimizer_states(path)
        results.append(store.pushpull("w", mine((5,), 1)))
        store.free()
        again = hvd.KVStore()
        again.set_optimizer(Update.ADAM)
        again.init("w", torch.zeros(5))
        again.load_optimizer_states(path)
        results.append(again.pushpull("w", mine((5,), 1)))
        equal(*results)
        again.free()


def check_process_sets():
    if hvd.size() < 2:
        return
    ranks = [1] if hvd.size() == 2 else [0, hvd.size() - 1]
    some = hvd.add_process_set(ranks)
    if some.included():
        store = hvd.KVStore(process_set=some)
        store.init("w", torch.zeros(2))
        equal(store.pushpull("w", torch.ones(2)), torch.full((2,), float(len(ranks))))
        assert store.rank == some.rank() and store.num_workers == len(ranks)
        store.free()
    else:
        assert "is no member" in raises(ValueError, hvd.KVStore, process_set=some)
    hvd.barrier()
    hvd.remove_process_set(some)


def check_what_is_refused():
    store = hvd.KVStore()
    assert "not been initialised" in raises(ValueError, store.push, "w", torch.ones(2))
    assert "not a torch.Tensor" in raises(ValueError, store.init, "w", [1.0])
    store.init("w", torch.ones(2)), store.init("m", torch.ones(3, 2)), store.init("n", torch.ones(2, 2, dtype=torch.int64))
    assert "and the gradient is float32 (3,)" in raises(ValueError, store.push, "w", torch.ones(3))
    assert "and out is float64 (2,)" in raises(ValueError, store.pull, "w", torch.ones(2, dtype=torch.float64))
    assert "out of key 'm' is not contiguous" in raises(ValueError, store.pull, "m", torch.ones(2, 3).t())
    assert "needs `out`" in raises(ValueError, store.pull, "w", wait=False)
    assert "rows are of two or more dimensions" in raises(ValueError, store.row_sparse_pull, "w", row_ids=[0])
    assert "2 rows of key 'm' are float32 (2, 2), and float32 (2, 3) is given" in raises(ValueError, store.row_sparse_push, "m", [0, 1], torch.ones(2, 3))
    assert "one sparse dimension" in raises(ValueError, store.push, "m", torch.ones(3, 2).to_sparse())
    assert "row 3 of key 'm'" in raises(ValueError, store.row_sparse_pull, "m", row_ids=[3])
    assert "give a tensor of int64 or int32" in raises(ValueError, store.lookup, "m", torch.ones(1))
    assert "which has no gradient" in raises(ValueError, store.lookup, "n", torch.tensor([0]))
    assert "one of 2bit" in raises(ValueError, store.set_gradient_compression, {"type": "3bit"})
    if hvd.size() > 1:
        other = torch.ones(3 + hvd.rank())
        if hvd.rank() == 0:
            store.init("uneven", other)
        else:
            assert "on rank 0" in raises(RuntimeError, store.init, "uneven", other)
    equal(store.pushpull("w", torch.ones(2)), torch.full((2,), float(hvd.size())))
    store.free()
    assert "does not exist any more" in raises(RuntimeError, store.push, "w", torch.ones(2))


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
