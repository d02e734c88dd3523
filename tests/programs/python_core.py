"""The package aiacc without a framework, on 1, 2, 3 ... ranks. With the word "numpy" also numpy's arrays."""
import array
import sys

import aiacc
from aiacc import DType, Op
from aiacc._library import library

aiacc.init()
WORLD = aiacc.WORLD
rank, size = aiacc.rank(), aiacc.size()


def raises(kind, function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except kind as error:
        return error
    raise AssertionError(f"{function.__name__} did not raise {kind.__name__}")


# Who is who.
assert (WORLD.rank, WORLD.size) == (rank, size) and aiacc.local_size() == size and aiacc.host_index() == 0
assert aiacc.initialized() and aiacc.version() == aiacc.__version__ and aiacc.info()["version"] == aiacc.__version__

# Collectives on buffers of the buffer protocol.
for code in "bBhHiIlLqQfd":
    data = array.array(code, [rank + 1, 2])
    WORLD.allreduce(data)
    assert list(data) == [size * (size + 1) // 2, 2 * size], (code, data)
mine, all_of = array.array("i", [rank] * 2), array.array("i", bytes(8 * size))
WORLD.allgather(mine, all_of)
assert list(all_of) == [i // 2 for i in range(2 * size)]
counts = [r + 1 for r in range(size)]
rows = array.array("d", bytes(8 * sum(counts)))
WORLD.allgather(array.array("d", [rank] * counts[rank]), rows, counts=counts)
assert list(rows) == [r for r in range(size) for _ in range(r + 1)]
text = bytearray(b"hello") if rank == size - 1 else bytearray(5)
WORLD.broadcast(text, root=size - 1)
assert text == b"hello"
given, got = array.array("f", [rank + 1.0] * size), array.array("f", [0.0])
WORLD.reduce_scatter(given, got)
assert got[0] == size * (size + 1) / 2
WORLD.reduce_scatter(given, got, counts=[1] * size, prescale=2.0)
assert got[0] == size * (size + 1)
back = bytearray(size)
WORLD.alltoall(bytes([rank]) * size, back)
assert list(back) == list(range(size))
WORLD.alltoall(bytes([rank]) * size, back, send_counts=[1] * size, recv_counts=[1] * size)
assert list(back) == list(range(size))
sums = array.array("q", [0])
WORLD.reduce(array.array("q", [3]), sums, op=Op.PROD, root=0)
assert sums[0] == (3 ** size if rank == 0 else 0)
gathered = bytearray(2 * size)
WORLD.gather(bytes([rank, rank]), gathered if rank == 0 else None)
WORLD.gather(bytes([rank, rank]), gathered if rank == 0 else None, counts=[2] * size)
assert rank > 0 or list(gathered) == [i // 2 for i in range(2 * size)]
part = bytearray(2)
WORLD.scatter(gathered if rank == 0 else None, part)
assert list(part) == [rank, rank]
WORLD.scatter(gathered if rank == 0 else None, part, counts=[2] * size)
several = [array.array("d", [1.0] * n) for n in (3, 0, 5)]
WORLD.allreduce_grouped(several)
assert several[2][4] == size
one_byte = array.array("h", [0x3F80, 0x4000])  # 1 and 2 in bfloat16, which the buffer protocol does not know
WORLD.allreduce(one_byte, dtype=DType.BFLOAT16, op=Op.AVG)
assert list(one_byte) == [0x3F80, 0x4000]
WORLD.barrier(timeout=100, name="here")

# Messages.
if size > 1:
    message = bytearray(3)
    WORLD.sendrecv(bytes([rank] * 3), (rank + 1) % size, message, (rank - 1) % size, tag=7)
    assert list(message) == [(rank - 1) % size] * 3
    if rank == 0:
        WORLD.send(b"abc", 1, tag=1)
    if rank == 1:
        WORLD.recv(message, 0, tag=1)
        assert message == b"abc"

# A master that gives work to whichever rank asks for it.
if size > 1:
    question, work = bytearray(1), array.array("q", [0])
    if rank == 0:
        given = [0] * size
        for task in [*range(1, 3 * size), *[-1] * (size - 1)]:
            asker = WORLD.recv_any(question, tag=3)
            assert asker == question[0] > 0
            WORLD.send(array.array("q", [task]), asker, tag=4)
            given[asker] += task > 0
        assert sum(given) == 3 * size - 1
    else:
        while work[0] >= 0:
            WORLD.send(bytes([rank]), 0, tag=3)
            WORLD.recv(work, 0, tag=4)
    from_any = WORLD.recv_any(question, tag=5, wait=False)
    assert from_any.source is None
    WORLD.barrier()
    WORLD.send(bytes([rank]), (rank + 1) % size, tag=5)
    from_any.wait()
    assert from_any.source == question[0] == (rank - 1) % size

# Requests.
requests = [WORLD.allreduce(one, wait=False) for one in several]
aiacc.wait_all(requests)
assert several[0][0] == size * size and all(request.test() for request in requests)
if size > 1:
    late = WORLD.recv(message, (rank + 1) % size, tag=9, wait=False)
    assert not late.test() and "goes on" in str(raises(aiacc.Timeout, late.wait, 0.01))
    WORLD.barrier()
    WORLD.send(b"xyz", (rank - 1) % size, tag=9)
    late.wait()
    assert message == b"xyz"

# One by one, in the order in which the others send.
if size > 1:
    others = [other for other in range(size) if other != rank]
    boxes = {other: bytearray(1) for other in others}
    open_ones = {other: WORLD.recv(boxes[other], other, tag=11, wait=False) for other in others}
    assert "go on" in str(raises(aiacc.Timeout, aiacc.wait_any, open_ones.values(), 0.01))
    for sender in reversed(range(size)):
        WORLD.barrier()
        if sender == rank:
            for other in others:
                WORLD.send(bytes([rank + 1]), other, tag=11)
            continue
        came = list(open_ones)[aiacc.wait_any(open_ones.values())]
        assert came == sender and open_ones.pop(came).test() and boxes[came] == bytes([sender + 1])
    assert not open_ones

# One of which the library knows nothing any more does not end another one.
if size > 1:
    late, gone = WORLD.recv(message, (rank + 1) % size, tag=12, wait=False), WORLD.allreduce(mine, wait=False)
    assert library().aiacc_wait(gone._handle) == 0
    assert aiacc.wait_any([gone, late]) == 0 and "not exist" in str(raises(aiacc.InvalidHandle, gone.wait))
    assert not late.test()
    WORLD.barrier()
    WORLD.send(b"uvw", (rank - 1) % size, tag=12)
    assert aiacc.wait_any([late]) == 0 and message == b"uvw"

# Without time it does what can be done at once.
polled = WORLD.allreduce(mine, wait=False)
while True:
    try:
        assert aiacc.wait_any([polled], 0) == 0
        break
    except aiacc.Timeout:
        pass
polled.wait()

# Groups.
with aiacc.Mesh("tp-pp", [1, 0]) as mesh:
    assert (mesh.coordinate("tp"), mesh.coordinate("pp")) == (0, rank)
    assert mesh.shift("pp", 1) == (rank + 1 if rank + 1 < size else -1) and mesh.shift("tp", -1) == -1
    for group, members in ((mesh.group("pp"), size), (mesh.gradient_group("pp"), 1), (mesh.gradient_group("tp"), size),
                           (mesh.gradient_group(), size)):
        ones = array.array("i", [1])
        group.allreduce(ones)
        assert (ones[0], group.size) == (members, members)
    ends = mesh.ends("pp")
    assert ends.size == min(size, 2) if rank in (0, size - 1) else ends is None
    assert "no axis 'dp'" in str(raises(aiacc.InvalidArgument, mesh.group, "dp"))
assert "which does not divide" in str(raises(aiacc.InvalidArgument, aiacc.Mesh, "tp-dp", [size + 1, 0]))
half = WORLD.split(rank % 2)
assert half.size == (size + 1 - rank % 2) // 2
half.barrier()
assert WORLD.split(None) is None
raises(aiacc.InvalidArgument, WORLD.create, [rank], traffic_class=7)
if rank < 2:
    few = WORLD.create(range(min(2, size)), name="few", traffic_class=aiacc.TrafficClass.BACKGROUND)
    few.barrier()
    assert few.translate([few.rank], WORLD) == [rank]
    few.free()

# Memory that ranks share.
memory = aiacc.Memory(4096)
memory.array[0] = 1
WORLD.allreduce(memory.array)
assert memory.array[0] == size
memory.free()

# Faults: nothing was started.
assert "aiacc_op_t" in str(raises(aiacc.InvalidArgument, WORLD.allreduce, array.array("d", [1.0]), op=99))
raises(ValueError, WORLD.broadcast, bytearray(1), root=size)
assert "not writable" in str(raises(BufferError, WORLD.allreduce, b"abc"))
assert "give dtype=" in str(raises(TypeError, WORLD.allreduce, memoryview(bytearray(8)).cast("P")))
assert "room for 1" in str(raises(ValueError, WORLD.allreduce, array.array("d", [1.0] * 2), array.array("d", [1.0])))
assert "one type" in str(raises(TypeError, WORLD.allreduce, array.array("d", [1.0]), array.array("f", [1.0])))
raises(ValueError, WORLD.alltoall, bytes(size), bytearray(size), send_counts=[1] * size)
raises(aiacc.InvalidState, aiacc.init)

if "numpy" in sys.argv:
    import numpy
    values = numpy.full((3, 4), rank + 1.0, dtype=numpy.float16)
    WORLD.allreduce(values)
    assert (values == size * (size + 1) / 2).all()
    raises((ValueError, BufferError), WORLD.allreduce, numpy.zeros((4, 4))[:, ::2])

# Ranks that disagree: the group is over, and says so.
if size > 1:
    doomed = WORLD.create(range(size), name="doomed")

    def disagree():
        if rank == 0:
            doomed.broadcast(bytearray(1))  # a root waits for nobody; if the others are in their barrier, it hears so here
        doomed.barrier()
    error = raises(aiacc.Mismatch, disagree)
    assert "different collectives" in str(error) and error.status == 9
    raises(aiacc.Aborted, doomed.barrier)
WORLD.barrier()
print("all is well")
