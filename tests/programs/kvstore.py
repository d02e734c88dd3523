"""The key-value store in Python, on 1, 2, 3 ... ranks, with MXNet's words. "death push" or "death pushpull": the last rank dies, and
survivors name it. "replicas": of two servers with replicas the first dies, and the workers go on. "sequence FILE": of three the first
dies, and, once the file exists, its heir. "afterwards FILE": the first of two dies, and all change the updater, save and load;
"again FILE": another job loads what they have saved."""
import array
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time

import aiacc
from aiacc.kvstore import KVStore, Mode, Update

aiacc.init()
rank, size = aiacc.rank(), aiacc.size()


def raises(kind, function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except kind as error:
        return error
    raise AssertionError(f"{function.__name__} did not raise {kind.__name__}")


def floats(*values):
    return array.array("f", values)


if sys.argv[1:2] == ["death"]:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())  # aiaccrun stops the others; they say first whom they miss
    store = KVStore(split_elements=100)
    gradient = array.array("f", [1.0]) * (10000 if sys.argv[2] == "push" else 200000)  # the workers sum rounds of the long ones
    try:
        store.init("w", gradient)  # may end on some ranks after the last one has died
        for step in range(1000):
            if rank == size - 1 and step == (0 if sys.argv[2] == "push" else 3):
                os.kill(os.getpid(), signal.SIGKILL)
            if sys.argv[2] == "push":
                store.push("w", gradient)
            else:
                store.pushpull("w", gradient, array.array("f", gradient))
    except aiacc.PeerFailed as error:
        assert error.rank == size - 1, error
        print(f"rank {rank} names rank {error.rank}", flush=True)
        named = pathlib.Path(sys.argv[3])  # who leaves before all have heard, and aiaccrun, may be the one that the others hear of
        (named / str(rank)).touch()
        while not stopped.wait(0.01) or len(list(named.iterdir())) < size - 1:
            pass
        store.free()
        sys.exit()
    raise AssertionError("a sync store went on without a worker")

if sys.argv[1:2] == ["replicas"]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    servers, workers = [0, 1], list(range(2, size))
    for mode in (Mode.SYNC, Mode.ASYNC):
        store = KVStore(mode, name=mode.name, replicas=2, split_elements=100, servers=servers, workers=workers)
        store.set_optimizer(Update.SUM)
        if rank in workers:
            store.init("w", array.array("q", [0]) * 200000)
        if mode == Mode.SYNC:
            first = store
    if rank == 0:
        aiacc.WORLD.recv(array.array("q", [0]), source=2)
        os.kill(os.getpid(), signal.SIGKILL)
    ones, out = array.array("q", [1]) * 200000, array.array("q", [0]) * 200000
    for step in range(10 if rank in workers else 0):
        if step == 3 and rank == 2:
            try:
                aiacc.WORLD.send(ones[:1], 0)
            except aiacc.PeerFailed:  # it has come, and rank 0 is gone already
                pass
        waiting = store.push("w", ones, wait=False)
        first.pushpull("w", ones, out)
        assert set(out) == {(step + 1) * len(workers)}, (step, set(out))
        waiting.wait()
        store.pull("w", out)
        assert min(out) >= step + 1, (step, min(out))
    first.free()
    if rank in workers:
        store.pull("w", out)
        assert set(out) == {10 * len(workers)}, set(out)
    store.free()
    print("all is well", flush=True)
    sys.exit()

if sys.argv[1:2] == ["sequence"]:
    servers, workers = [0, 1, 2], list(range(3, size))
    pids = array.array("q", [0]) * size
    aiacc.WORLD.allgather(array.array("q", [os.getpid()]), pids)
    store = KVStore(replicas=2, split_elements=100, servers=servers, workers=workers)
    store.set_optimizer(Update.SUM)
    for victim in servers[:2]:
        aiacc.runtime.go_on_without(victim)
    if rank in workers:
        ones, out, end = array.array("q", [1]) * 200000, array.array("q", [0]) * 200000, time.monotonic() + 100
        store.init("w", out)
        store.init("told", array.array("q", [0]))
        told, step, last = array.array("q", [0]), 0, 8
        while step < last:
            waiting = store.push("w", ones, wait=False)
            if step == 3 and rank == 3:
                os.kill(pids[0], signal.SIGKILL)
            step += 1
            waiting.wait()
            if step > 3 and told[0] == 0:  # all workers hear of the file in the same step
                last += 1
                assert time.monotonic() < end, "nobody says that the copies are there"
                store.pushpull("told", array.array("q", [int(rank == 3 and os.path.exists(sys.argv[2]))]), told)
                if told[0] > 0 and rank == 3:
                    os.kill(pids[1], signal.SIGKILL)
            store.pull("w", out)
            assert set(out) == {step * len(workers)}, (step, set(out))
    store.free()
    print("all is well", flush=True)
    sys.exit()

if sys.argv[1:2] in (["afterwards"], ["again"]):
    servers, workers, count = [0, 1], list(range(2, size)), 1000
    pids = array.array("q", [0]) * size
    aiacc.WORLD.allgather(array.array("q", [os.getpid()]), pids)
    store = KVStore(replicas=2, split_elements=100, servers=servers, workers=workers)
    value, moved = 0.0, 0.0  # of each element, by exact numbers

    def train(steps, rate):
        global value, moved
        for _ in range(steps if rank in workers else 0):
            moved = 0.5 * moved - rate * len(workers)
            value += moved
            store.pushpull("w", ones, out)
            assert set(out) == {value}, (value, set(out))

    ones, out = array.array("f", [1.0]) * count, array.array("f", [0.0]) * count
    store.set_optimizer(Update.SGD, rate=0.5, momentum=0.5)
    if rank in workers:
        store.init("w", out)
    if sys.argv[1] == "again":
        store.load_optimizer_states(sys.argv[2])
        value, moved = (float(number) for number in sys.argv[3:])
        train(2, 0.5)
    else:
        aiacc.runtime.go_on_without(0)
        train(3, 0.5)
        if rank == 2:
            os.kill(pids[0], signal.SIGKILL)  # which waits for this rank in the next call
        store.set_optimizer(Update.SGD, rate=0.25, momentum=0.5)
        train(2, 0.25)
        store.save_optimizer_states(sys.argv[2])
        saved = value, moved
        train(2, 0.25)
        store.load_optimizer_states(sys.argv[2])
        value, moved = saved
        train(2, 0.25)
        if rank in servers:
            raises(aiacc.Error, store.load_optimizer_states, sys.argv[2] + ".none")
        else:
            store.load_optimizer_states(sys.argv[2] + ".none")
        train(1, 0.25)
        if rank == 2:
            print(*saved, flush=True)
    store.free()
    sys.exit()

# The sum of all workers, over integer and string keys, small and split.
store = KVStore(name="first", split_elements=1000)
assert (store.rank, store.num_workers, store.type) == (rank, size, "dist_sync_aiacc")
for key, count in (("bias", 3), (7, 5000), ("7", 1), (-1, 0)):
    out = array.array("f", [-1.0] * count)
    store.broadcast(key, array.array("f", [rank + 5.0] * count), out)
    assert list(out) == [5.0] * count
    store.push(key, array.array("f", [rank + 1.0] * count), priority=-3)
    store.pull(key, out, priority=-3)
    assert list(out) == [size * (size + 1) / 2] * count
    both = array.array("f", [1.0] * count)
    store.pushpull(key, both)
    assert list(both) == [size] * count

# Without waiting: the pull sees its push.
requests, outs = [], [floats(0, 0, 0) for _ in range(10)]
for step, out in enumerate(outs):
    requests.append(store.push("bias", floats(step, 0, 1), wait=False))
    requests.append(store.pull("bias", out, wait=False))
aiacc.wait_all(requests)
assert [list(out) for out in outs] == [[step * size, 0, size] for step in range(10)]

# Long values: the workers sum rounds to which all bring a pushpull, and servers the others.
long = array.array("f", [rank + 1.0]) * 200000
store.init("long", long)
for step in range(4):
    out, again = (array.array("f", [0.0]) * len(long) for _ in range(2))
    if step == 2 and rank == 0:
        store.push("long", long)
    else:
        store.pushpull("long", long, out)
    store.pull("long", again)
    assert set(again) == {size * (size + 1) / 2} and (out == again or step == 2 and rank == 0), (step, out[0], again[0])

# SGD on the servers, and a saved state.
store.init("w", floats(1, 2))
store.set_optimizer(Update.SGD, rate=0.5, momentum=0.5)
out = floats(0, 0)
store.pushpull("w", floats(1, 1), out)
assert list(out) == [1 - 0.5 * size, 2 - 0.5 * size]
folder = tempfile.mkdtemp()
path = os.path.join(folder, "states")
store.save_optimizer_states(path)
store.pushpull("w", floats(1, 1), out)
want = list(out)
store.load_optimizer_states(path)
store.pushpull("w", floats(1, 1), out)
assert list(out) == want == [1 - 1.25 * size, 2 - 1.25 * size], (out, want)
os.unlink(f"{path}.{rank}")
os.rmdir(folder)

# Rows.
store.set_optimizer(Update.SUM)
store.init("rows", array.array("f", [1.0] * 12), rows=6)
store.row_sparse_push("rows", [5, rank % 2], floats(1, 2, 3, 4))
some = array.array("f", [0.0] * 6)
for ids in ([5, 3, 5], array.array("q", [5, 3, 5]), array.array("h", [5, 3, 5])):
    store.row_sparse_pull("rows", some, row_ids=ids)
    assert list(some) == [1 + size, 1 + 2 * size, 1, 1, 1 + size, 1 + 2 * size]

# 2-bit gradients.
store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
out = floats(0, 0)
store.init("small", floats(0, 0))
store.pushpull("small", floats(0.75, 0.25), out)
assert list(out) == [0.5 * size, 0]
store.pushpull("small", floats(0, 0.25), out)
assert list(out) == [0.5 * size, 0.5 * size], "the residual is sent"
store.set_gradient_compression({"type": "none"})
raises(ValueError, store.set_gradient_compression, {"type": "3bit"})

# An updater in Python, on each server.
seen = []


def updater(key, first, gradient, value):
    seen.append((key, first))
    for i in range(len(value)):
        value[i] = value[i] * 2 + gradient[i]
    if key == "fails":
        raise RuntimeError("on purpose")


store.set_updater(updater)
store.init("mine", floats(1, 2, 3))
out = floats(0, 0, 0)
store.pushpull("mine", floats(1, 0, 0), out)
assert list(out) == [2 + size, 4, 6], out
assert all(key == "mine" and first == 0 for key, first in seen)
sys.stderr.flush()
saved, quiet = os.dup(2), os.open(os.devnull, os.O_WRONLY)
os.dup2(quiet, 2)  # the traceback is expected
store.init("fails", floats(1))
error = raises(aiacc.Aborted, store.push, "fails", floats(1))
assert "the updater returned 1 for key 'fails'" in str(error), error
store.barrier()
os.dup2(saved, 2)

# What is refused.
assert "was not initialised on rank" in str(raises(aiacc.InvalidState, store.push, "nobody", floats(1)))
assert "is 3 fp32" in str(raises(aiacc.InvalidArgument, store.push, "mine", floats(1)))
if size > 1:
    error = raises(aiacc.Mismatch, store.init, "other", floats(*range(3 + rank))) if rank else store.init("other", floats(0, 0, 0))
    assert not rank or f"is 3 fp32 on rank 0, and {3 + rank} fp32 on rank {rank}" in str(error)
    late = raises(aiacc.Timeout, store.push, "mine", floats(0, 0, 0), timeout=0.05) if rank == 0 else None
aiacc.WORLD.barrier()  # a rank that frees the store ends the push
store.free()
raises(aiacc.InvalidHandle, store.push, "mine", floats(0, 0, 0))

# Each push at once, also while the others compute.
store = KVStore(Mode.ASYNC, name="async", traffic_class=aiacc.TrafficClass.BACKGROUND)
assert store.type == "dist_async_aiacc"
store.set_optimizer(Update.SUM)
store.init("count", array.array("q", [0]))
for _ in range(20):
    store.push("count", array.array("q", [1]))
aiacc.WORLD.barrier()
if rank == 0:
    out = array.array("q", [0])
    store.pull("count", out)
    assert out[0] == 20 * size
else:
    time.sleep(0.01)

# Servers that are no workers; a store that is left to finalize.
if size > 1:
    store = KVStore(name="roles", servers=[0], workers=list(range(1, size)))
    if rank:
        assert store.rank == rank - 1
        store.init("w", floats(rank))
        out = floats(0)
        store.pull("w", out)
        assert out[0] == 1.0
    else:
        assert store.rank == -1 and store.is_server
else:
    store = KVStore(name="alone")
aiacc.finalize()
error = raises(aiacc.InvalidHandle, store.push, "w", floats(1))
assert "does not exist any more" in str(error), error
print("all is well", flush=True)
