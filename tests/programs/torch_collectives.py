"""The collectives of aiacc.torch on 1, 2, 3 ... ranks."""
import hang_report

hang_report.after(250)

import json
import os
import sys
import tempfile
import time

import torch

import aiacc
import aiacc.torch as hvd
from aiacc._horovod import named
from aiacc.torch import tensors
from torch_checks import close, equal, raises, run

TYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
SHAPES = [(), (1,), (0,), (3, 0, 2), (17,), (5, 4), (3, 1, 7)]


def of_rank(rank, shape, dtype):
    count = torch.Size(shape).numel()
    return ((torch.arange(count) % 5 + rank + 1).to(dtype)).reshape(shape)


def sum_of(shape, dtype):
    return sum((of_rank(rank, shape, torch.float64) for rank in range(hvd.size())), torch.zeros(shape, dtype=torch.float64)).to(dtype)


def check_queries():
    rank, size = hvd.rank(), hvd.size()
    assert 0 <= rank < size and (hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()) == (rank, size, 0, 1)
    assert hvd.is_initialized() and hvd.is_homogeneous() and hvd.aiacc_built()
    assert not (hvd.mpi_built() or hvd.mpi_enabled() or hvd.gloo_built() or hvd.gloo_enabled() or hvd.cuda_built() or hvd.rocm_built()
                or hvd.ddl_built() or hvd.ccl_built()) and hvd.nccl_built() == 0
    assert "MPI" in raises(ValueError, hvd.mpi_threads_supported)
    hvd.init()  # again: nothing


def ranks_in_timeline(file, steps):
    """The ranks of which a timeline of so many steps has events, on rank 0."""
    hvd.start_timeline(file, mark_cycles=True)
    assert "already" in raises(ValueError, hvd.start_timeline, file)
    aiacc.WORLD.barrier()
    for step in range(steps):
        hvd.synchronize(hvd.allreduce_async(torch.ones(10), name="a named one", op=hvd.Sum))
        time.sleep(0.05)
    aiacc.WORLD.barrier()
    hvd.stop_timeline()
    hvd.stop_timeline()  # again: nothing
    if hvd.rank() != 0:
        return set()
    with open(file) as written:
        events = json.load(written)
    kind = "reduce" if hvd.size() > 1 else "process_name"  # one rank has nothing to reduce
    return {event["pid"] for event in events if event["name"] == kind}


def check_timeline():
    """A rank asks rank 0 every 100 ms whether it has begun; a slow one may not have for a second."""
    for steps in (20, 80, 320):
        with tempfile.TemporaryDirectory() as folder:
            found = hvd.broadcast_object(ranks_in_timeline(os.path.join(folder, "timeline.json"), steps))
        if found == set(range(hvd.size())):
            break
    assert found == set(range(hvd.size())), found
    counted = aiacc.metrics()
    assert counted["rank"] == hvd.rank() and (hvd.size() == 1 or counted["gradient"]["tensors"] >= 20), counted


def check_allreduce_of_each_type_and_shape():
    for dtype in TYPES:
        for shape in SHAPES:
            given = of_rank(hvd.rank(), shape, dtype)
            before = given.clone()
            equal(hvd.allreduce(given, op=hvd.Sum), sum_of(shape, dtype))
            equal(given, before)
            equal(hvd.synchronize(hvd.allreduce_async(given, op=hvd.Sum)), sum_of(shape, dtype))
            equal(hvd.allreduce(given, op=hvd.Max), of_rank(hvd.size() - 1, shape, dtype))
            equal(hvd.allreduce(given, op=hvd.Min), of_rank(0, shape, dtype))
            handle = hvd.allreduce_async_(given, op=hvd.Sum)
            assert hvd.synchronize(handle) is given
            equal(given, sum_of(shape, dtype))
    close(hvd.allreduce(torch.full((4,), 2.0), op=hvd.Product), torch.full((4,), 2.0 ** hvd.size()))
    equal(hvd.allreduce(torch.tensor([True, False, hvd.rank() == 0]), op=hvd.Sum), torch.tensor([True, False, True]))


def check_average_and_scales():
    n = hvd.size()
    given = torch.arange(6.0) + hvd.rank()
    mean = torch.arange(6.0) + (n - 1) / 2
    close(hvd.allreduce(given), mean)
    close(hvd.allreduce(given, average=True), mean)
    close(hvd.allreduce(given, average=False), mean * n)
    close(hvd.allreduce(given, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0), mean * n * 1.5)
    close(hvd.allreduce(given, compression=hvd.Compression.fp16), mean, 1e-2)
    assert hvd.allreduce(torch.arange(4), compression=hvd.Compression.fp16).dtype == torch.int64
    assert "average" in raises(ValueError, hvd.allreduce, given, average=True, op=hvd.Sum)


def check_tensors_with_gaps():
    n = hvd.size()
    given = (torch.arange(24.0).reshape(4, 6) + hvd.rank()).t()
    expected = (torch.arange(24.0).reshape(4, 6) * n + n * (n - 1) / 2).t()
    equal(hvd.allreduce(given, op=hvd.Sum), expected.contiguous())
    every_other = torch.zeros(10)
    every_other[::2] = 1.0
    hvd.allreduce_(every_other[::2], op=hvd.Sum)
    equal(every_other, torch.tensor([float(n), 0.0] * 5))
    turned = torch.full((3, 2), float(hvd.rank())).t()
    hvd.broadcast_(turned, n - 1)
    equal(turned, torch.full((2, 3), float(n - 1)))
    equal(hvd.allgather(torch.arange(6).reshape(3, 2)[:, ::2]), torch.tensor([[0], [2], [4]] * n))
    parameter = torch.nn.Parameter(torch.full((3,), float(hvd.rank())))
    hvd.broadcast_(parameter, 0)
    equal(parameter.detach(), torch.zeros(3))


def check_grouped():
    n, rank = hvd.size(), hvd.rank()
    given = [torch.full((3,), rank + 1.0), torch.full((2, 2), rank + 1, dtype=torch.int64), torch.full((), rank + 1.0, dtype=torch.bfloat16)]
    total = n * (n + 1) // 2
    for got in (hvd.grouped_allreduce(given, op=hvd.Sum), hvd.synchronize(hvd.grouped_allreduce_async(given, op=hvd.Sum))):
        equal(got[0], torch.full((3,), float(total)))
        equal(got[1], torch.full((2, 2), total))
        equal(got[2], torch.full((), float(total), dtype=torch.bfloat16))
    a, b = hvd.grouped_allgather([torch.full((rank, 2), 1.0), torch.full((1,), rank)])
    assert a.shape == (n * (n - 1) // 2, 2)
    equal(b, torch.arange(n))
    c, d = hvd.grouped_reducescatter([torch.ones(n, 3), torch.ones(2 * n, dtype=torch.int32)], op=hvd.Sum)
    equal(c, torch.full((1, 3), float(n)))
    equal(d, torch.full((2,), n, dtype=torch.int32))
    assert hvd.grouped_allreduce_(given, op=hvd.Sum)[1] is given[1]
    equal(given[1], torch.full((2, 2), total))


def check_allgather_of_different_rows():
    n = hvd.size()
    for dtype in TYPES + [torch.bool]:
        mine = torch.ones(hvd.rank(), 3).to(dtype)  # rank 0 has none
        equal(hvd.allgather(mine), torch.ones(n * (n - 1) // 2, 3).to(dtype))
    rows = [torch.full((r + 1, 2), r) for r in range(n)]
    equal(hvd.synchronize(hvd.allgather_async(rows[hvd.rank()], name="rows")), torch.cat(rows))


def check_broadcast():
    for root in range(hvd.size()):
        for dtype in TYPES + [torch.bool]:
            given = of_rank(hvd.rank(), (4, 3), dtype)
            equal(hvd.broadcast(given, root), of_rank(root, (4, 3), dtype))
            equal(given, of_rank(hvd.rank(), (4, 3), dtype))
            assert hvd.synchronize(hvd.broadcast_async_(given, root, name=f"b{root}")) is given
            equal(given, of_rank(root, (4, 3), dtype))


def check_alltoall():
    n, rank = hvd.size(), hvd.rank()
    equal(hvd.alltoall(torch.full((n, 2), rank)), torch.arange(n).repeat(2, 1).t().contiguous())
    splits = torch.tensor([(rank + to) % 3 for to in range(n)], dtype=torch.int32)
    got, received = hvd.alltoall(torch.full((int(splits.sum()), 2), float(rank)), splits=splits)
    counts = [(source + rank) % 3 for source in range(n)]
    equal(received, torch.tensor(counts, dtype=torch.int32))
    equal(got, torch.cat([torch.full((count, 2), float(source)) for source, count in enumerate(counts)]))
    assert isinstance(hvd.synchronize(hvd.alltoall_async(torch.ones(n))), tuple)


def check_reducescatter():
    n, rank = hvd.size(), hvd.rank()
    got = hvd.reducescatter(torch.arange(2 * n + 1.0).unsqueeze(1).repeat(1, 2), op=hvd.Sum)
    begin, rows = (0, 3) if rank == 0 else (2 * rank + 1, 2)
    equal(got, (torch.arange(begin, begin + rows) * float(n)).unsqueeze(1).repeat(1, 2))
    equal(hvd.reducescatter(torch.ones(n)), torch.ones(1))
    assert "Average or Sum" in raises(hvd.HorovodInternalError, hvd.reducescatter, torch.ones(n), op=hvd.Max)


def check_many_handles_in_flight():
    given = [torch.full((100 + i,), float(hvd.rank() + i)) for i in range(60)]
    handles = [hvd.allreduce_async(one, name=f"t{i}", op=hvd.Sum) if i % 2 else hvd.allgather_async(one[:1]) for i, one in enumerate(given)]
    n = hvd.size()
    for i, handle in reversed(list(enumerate(handles))):
        got = hvd.synchronize(handle)
        equal(got, torch.full((100 + i,), float(n * i + n * (n - 1) // 2)) if i % 2 else torch.arange(i, i + n).float())
    assert hvd.synchronize(handles[0]) is None
    assert "synchronized already" in raises(ValueError, hvd.poll, handles[0])
    handle = hvd.barrier() or hvd.allreduce_async(torch.ones(1))
    while not hvd.poll(handle):
        pass
    hvd.synchronize(handle)


def check_asynchronous_operations_that_others_start_behind_a_barrier():
    """Rank 0 starts them before the barrier and the others behind it, as in Horovod's tests of duplicate names."""
    n, rank = hvd.size(), hvd.rank()
    begin = [lambda: hvd.allgather_async(torch.full((1,), float(rank)), name="beside"), lambda: hvd.broadcast_async(torch.full((1,), 5.0 + rank), 0),
             lambda: hvd.reducescatter_async(torch.ones(n), op=hvd.Sum)]
    expected = [torch.arange(float(n)), torch.full((1,), 5.0), torch.full((1,), float(n))]
    handles = [one() for one in begin] if rank == 0 else []
    hvd.barrier()
    handles = handles or [one() for one in begin]
    hvd.barrier()
    for handle, result in zip(handles, expected):
        equal(hvd.synchronize(handle), result)
    # A blocking operation with a name comes before an asynchronous one with another.
    handle = hvd.allgather_async(torch.ones(1), name="aside") if rank == 0 else None
    equal(hvd.allreduce(torch.ones(2), name="first", op=hvd.Sum), torch.full((2,), float(n)))
    equal(hvd.synchronize(handle if handle is not None else hvd.allgather_async(torch.ones(1), name="aside")), torch.ones(n))


def check_operations_in_another_order_on_each_rank():
    """Named ones of each kind, and some without a name, of which those of one kind stay in their order. On one rank of each step some
    of them block."""
    n, rank = hvd.size(), hvd.rank()
    sparse_ones = torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (4,))
    kinds = {
        "rows": (lambda name: hvd.allgather_async(torch.full((rank + 1,), rank), name=name), torch.arange(n).repeat_interleave(torch.arange(1, n + 1))),
        "more rows": (lambda name: hvd.allgather_async(torch.full((1, 2), rank), name=name), torch.arange(n)[:, None].repeat(1, 2)),
        "root": (lambda name: hvd.broadcast_async(torch.full((2,), 5 + rank), n - 1, name=name), torch.full((2,), 4 + n)),
        "swap": (lambda name: hvd.alltoall_async(torch.full((n,), rank), name=name), (torch.arange(n), torch.ones(n, dtype=torch.int32))),
        "part": (lambda name: hvd.reducescatter_async(torch.ones(n, 2), name=name, op=hvd.Sum), torch.full((1, 2), float(n))),
        "sums": (lambda name: hvd.grouped_allreduce_async([torch.ones(3), torch.ones(1).double()], name=name, op=hvd.Sum),
                 [torch.full((3,), float(n)), torch.full((1,), float(n)).double()]),
        "all rows": (lambda name: hvd.grouped_allgather_async([torch.full((1,), rank), torch.ones(1)], name=name), [torch.arange(n), torch.ones(n)]),
        "parts": (lambda name: hvd.grouped_reducescatter_async([torch.ones(n)], name=name, op=hvd.Sum), [torch.full((1,), float(n))]),
        "sum of rows": (lambda name: hvd.sparse_allreduce_async(sparse_ones, name, hvd.Sum), torch.tensor([1.0, 0, 2, 0]) * n),
    }
    for step in range(3 * n):
        named = [(kind, f"{kind} {step}") for kind in kinds] + [("root", None), ("root", None), ("swap", None), ("sums", None)]
        handles = []
        for number in torch.randperm(len(named), generator=torch.Generator().manual_seed(100 * step + rank)).tolist():
            kind, name = named[number]
            handles.append((kind, kinds[kind][0](name)))
            if rank == step % n and number % 2:
                handles[-1] = (kind, lambda result=hvd.synchronize(handles[-1][1]): result)
        for kind, handle in reversed(handles):
            result, expected = hvd.synchronize(handle), kinds[kind][1]
            for one, other in zip(result, expected) if isinstance(expected, (tuple, list)) else [(result, expected)]:
                equal(one.to_dense() if one.layout != torch.strided else one, other)


def check_named_asynchronous_allreduces_in_another_order_on_each_rank():
    n, rank = hvd.size(), hvd.rank()
    for step in range(8):
        order = torch.randperm(20, generator=torch.Generator().manual_seed(100 * step + rank)).tolist()
        handles = {}
        for i in order:
            given = torch.full((10 + i, 2), float(rank + i), dtype=TYPES[i % len(TYPES)])
            handles[i] = hvd.allreduce_async(given, name=f"own {i}", op=hvd.Sum)
        for i in reversed(order):
            equal(hvd.synchronize(handles[i]), torch.full((10 + i, 2), float(n * i + n * (n - 1) // 2), dtype=TYPES[i % len(TYPES)]))
    # Another shape and operator of the same name, and a tensor with gaps in place.
    for shape, op in (((3,), hvd.Sum), ((4,), hvd.Sum), ((4,), hvd.Max), ((3,), hvd.Sum)):
        close(hvd.synchronize(hvd.allreduce_async(torch.ones(shape), name="changes", op=op)), torch.full(shape, float(n) if op == hvd.Sum else 1.0))
    gaps = torch.zeros(6)
    handle = hvd.allreduce_async_(gaps[::2].fill_(1.0), name="gaps", op=hvd.Sum)
    while not hvd.poll(handle):
        pass
    hvd.synchronize(handle)
    equal(gaps, torch.tensor([float(n), 0.0] * 3))


class EngineThatEnded:
    def __init__(self, owner):
        self.owner, self.freed = owner, []

    def add(self, *_):
        return 0

    def submit(self, *_):
        raise aiacc.Aborted("by another rank")

    def free(self):
        self.freed.append(self.owner._lock.locked())


def check_the_other_of_two_engines_is_freed_outside_of_the_lock():
    """Its free waits for what runs there, which others end who need the lock."""
    owner = named.NamedAllreduces(hvd.global_process_set._channel, tensors, 0)
    ended, other = EngineThatEnded(owner), EngineThatEnded(owner)
    owner._table, owner._old = (named.Table(one, 0, owner._limits) for one in (ended, other))
    raises(hvd.HorovodInternalError, owner.start, "x", torch.ones(1), torch.ones(1), hvd.Sum, 1.0, 1.0)
    assert (ended.freed, other.freed) == ([], [False])


def check_gradients():
    n, rank = hvd.size(), hvd.rank()
    x = torch.full((4, 2), rank + 1.0, requires_grad=True)
    (hvd.allreduce(x, op=hvd.Sum) * (rank + 1)).sum().backward()
    close(x.grad, torch.full((4, 2), n * (n + 1) / 2))
    x.grad = None
    hvd.allgather(x[:rank + 1]).mul(rank + 1.0).sum().backward()
    expected = torch.zeros(4, 2)
    expected[:rank + 1] = (n + 1) / 2
    close(x.grad, expected)
    x.grad = None
    hvd.broadcast(x, n - 1).mul(rank + 1.0).sum().backward()
    close(x.grad, torch.full((4, 2), (n + 1) / 2 if rank == n - 1 else 0.0))
    x = torch.ones(n + 1, requires_grad=True)  # its last row stays
    hvd.alltoall(x, splits=[1] * n)[0].mul(rank + 1.0).sum().backward()
    close(x.grad, torch.cat([torch.arange(1.0, n + 1), torch.zeros(1)]))
    for op, factor in ((hvd.Sum, n), (hvd.Average, 1)):
        x = torch.ones(2 * n + 1, requires_grad=True)
        hvd.reducescatter(x, op=op).mul(rank + 1.0).sum().backward()
        shares = [2 + (r < 1) for r in range(n)]
        close(x.grad, torch.cat([torch.full((share,), (r + 1.0) * factor) for r, share in enumerate(shares)]))
    a, b = torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)
    sum(one.sum() for one in hvd.grouped_allreduce([a, b])).backward()
    close(a.grad, torch.ones(3))
    x = torch.ones(3, requires_grad=True)
    hvd.allreduce(x, compression=hvd.Compression.fp16, op=hvd.Sum).sum().backward()
    close(x.grad, torch.full((3,), float(n)))


def check_sparse():
    n, rank = hvd.size(), hvd.rank()
    given = torch.sparse_coo_tensor([[rank, rank + 1]], [1.0, 2.0], (n + 1,))
    expected = sum((torch.sparse_coo_tensor([[r, r + 1]], [1.0, 2.0], (n + 1,)).to_dense() for r in range(n)), torch.zeros(n + 1))
    close(hvd.synchronize(hvd.sparse_allreduce_async(given, "s", hvd.Sum)).to_dense(), expected)
    close(hvd.sparse_allreduce_async(given, None, hvd.Average)().to_dense(), expected / n)


def sparse(rank, rows, shape, dims=1):
    """So many rows of a tensor, other ones on each rank, some twice."""
    generator = torch.Generator().manual_seed(rank)
    indices = torch.stack([torch.randint(0, size, (rows,), generator=generator) for size in shape[:dims]])
    return torch.sparse_coo_tensor(indices, torch.randn(rows, *shape[dims:], generator=generator), shape)


def check_sparse_tensors_travel_as_rows_or_dense():
    from aiacc.torch._sparse import SparseAllreduce
    n, rank = hvd.size(), hvd.rank()
    for shape, dims, rows, gathers in (((1000, 8), 1, 5, True), ((50, 8), 1, 200, False), ((6, 5, 3), 2, 90, False), ((400, 500), 2, 7, True),
                                       ((9, 4), 1, 0, True)):
        own = [rows + of if rows else 0 for of in range(n)]
        given = [sparse(of, own[of], shape, dims) for of in range(n)]
        one = SparseAllreduce("which", given[rank], hvd.Sum)
        if n > 2 or gathers:
            assert one.gathers(sum(each.coalesce()._nnz() for each in given)) == gathers, (shape, rows)
        for op in (hvd.Sum, hvd.Average):
            found = hvd.sparse_allreduce_async(given[rank], "rows", op)()
            dense = sum(each.to_dense() for each in given)
            close(found.to_dense(), dense / n if op == hvd.Average else dense)
            assert found.layout == torch.sparse_coo and found.shape == shape and found.sparse_dim() == dims and found.is_coalesced()
            assert found.dtype == torch.float32
    # A row whose sum is zero exists, as it would after a gather.
    rows = torch.sparse_coo_tensor([list(range(20))], torch.ones(20, 3) * (-1 if rank else n - 1), (21, 3))
    found = hvd.sparse_allreduce_async(rows, None, hvd.Sum)()
    assert found._nnz() == 20 and not found.to_dense().any()
    assert "sparse_coo" in raises(ValueError, hvd.sparse_allreduce_async, torch.ones(2), None, hvd.Sum)
    assert "Average or Sum" in raises(ValueError, hvd.sparse_allreduce_async, rows, None, hvd.Min)
    if n > 1:
        first = hvd.sparse_allreduce_async(rows, "same", hvd.Sum) if rank == 0 else None
        assert rank or "twice" in raises(ValueError, hvd.sparse_allreduce_async, rows, "same", hvd.Sum)
        hvd.barrier()
        (first or hvd.sparse_allreduce_async(rows, "same", hvd.Sum))()
        assert "type and shape" in raises(hvd.HorovodInternalError, hvd.sparse_allreduce_async(sparse(0, 2, (9 + rank, 2)), None, hvd.Sum))


def check_objects():
    n, rank = hvd.size(), hvd.rank()
    assert hvd.broadcast_object({"from": rank, "long": "x" * rank * 1000}, root_rank=n - 1) == {"from": n - 1, "long": "x" * (n - 1) * 1000}
    assert hvd.allgather_object([rank] * rank) == [[r] * r for r in range(n)]


def check_process_sets():
    n, rank = hvd.size(), hvd.rank()
    assert hvd.global_process_set.process_set_id == 0 and hvd.global_process_set.size() == n
    raises(ValueError, hvd.add_process_set, list(range(n)))
    raises(ValueError, hvd.add_process_set, [0, n])
    raises(ValueError, hvd.ProcessSet, ["0"])
    if n < 2:
        return
    raises(ValueError, hvd.ProcessSet([0]).size)
    upper = hvd.add_process_set(range(1, n))
    assert upper.size() == n - 1 and upper.included() == (rank > 0) and upper.ranks == list(range(1, n))
    if upper.included():
        assert upper.rank() == rank - 1
        equal(hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=upper), torch.full((2,), n - 1.0))
        equal(hvd.broadcast(torch.tensor([rank]), n - 1, process_set=upper), torch.tensor([n - 1]))
        equal(hvd.allgather(torch.tensor([rank]), process_set=upper), torch.arange(1, n))
        assert "root_rank is 0" in raises(ValueError, hvd.broadcast, torch.ones(1), 0, process_set=upper)
        hvd.barrier(process_set=upper)
    else:
        assert "is no member of" in raises(ValueError, hvd.allreduce, torch.ones(1), process_set=upper)
    equal(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(n)]))
    assert hvd.remove_process_set(upper) and not hvd.remove_process_set(upper) and not hvd.remove_process_set(hvd.global_process_set)
    raises(ValueError, upper.size)
    # Sets go on without each other: two asynchronous operations of two sets, in another order on each rank.
    one, two = hvd.add_process_set([0, 1]) if n > 2 else hvd.global_process_set, hvd.global_process_set
    if one.included():
        order = [one, two] if rank == 0 else [two, one]
        handles = [hvd.allreduce_async(torch.ones(1), op=hvd.Sum, process_set=each) for each in order]
        assert sorted(float(hvd.synchronize(handle)) for handle in handles) == sorted([2.0, float(n)])
    else:
        hvd.allreduce(torch.ones(1), op=hvd.Sum)


def check_join():
    n, rank = hvd.size(), hvd.rank()
    for _ in range(2):
        # Rank r has n - r batches: the highest rank is the first to run out.
        for batch in range(n - rank):
            got = hvd.allreduce(torch.ones(3, 2), op=hvd.Sum)
            equal(got, torch.full((3, 2), float(n - batch)))
        assert hvd.join() == 0
    if n > 1:
        if rank == 0:
            assert hvd.join() == n - 1
        else:
            text = raises(hvd.HorovodInternalError, hvd.allgather, torch.ones(2))
            assert "while rank 0 has joined" in text
            close(hvd.allreduce(torch.ones(2), name="mean"), torch.full((2,), (n - 1.0) / n))
            assert hvd.join() == n - 1
        if rank == 0:
            assert hvd.join() != 0
        else:
            order = ("a", "b") if rank == 1 else ("b", "a")
            for handle in [hvd.grouped_allreduce_async([torch.ones(2)], name=name, op=hvd.Sum) for name in order]:
                equal(hvd.synchronize(handle)[0], torch.full((2,), n - 1.0))
            hvd.join()
        for first in (0, n - 1):  # its join is seen together with that of the others, which had named allreduces meanwhile
            if rank != first:
                close(hvd.synchronize(hvd.allreduce_async(torch.ones(2), name="late", op=hvd.Sum)), torch.full((2,), n - 1.0))
            assert hvd.join() != first


def check_shutdown_and_init_again():
    hvd.shutdown()
    assert not hvd.is_initialized()
    assert "Horovod has not been initialized; use hvd.init()" in raises(ValueError, hvd.rank)
    assert "init" in raises(ValueError, hvd.allreduce, torch.ones(1))
    ranks = [[0]] if hvd.global_process_set is not None else []
    import aiacc
    hvd.init(process_sets=ranks if aiacc.size() > 1 else None)
    equal(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(hvd.size())]))


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
