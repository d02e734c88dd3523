"""What goes wrong: every rank hears of it with Horovod's exception and a sentence, and what can go on goes on."""
import hang_report

hang_report.after(250)

import os
import sys

import torch
from torch import nn

import aiacc.torch as hvd
from torch_checks import equal, raises, run

Internal = hvd.HorovodInternalError


def check_ranks_that_disagree():
    rank, last = hvd.rank(), hvd.size() - 1
    if last == 0:
        return
    ones = torch.ones
    cases = [
        (lambda: hvd.allreduce(ones(2 + rank), name="x"), "give different tensors different names on all ranks"),
        (lambda: hvd.allreduce(ones(2 + rank)), "ranks disagree about allreduce: its type and shape is [['torch.float32', 2]] on rank 0 "
                                                "and [['torch.float32', 3]] on rank 1"),
        (lambda: hvd.allreduce(ones(2).double() if rank else ones(2)), "[['torch.float32', 2]] on rank 0 and [['torch.float64', 2]] on rank 1"),
        (lambda: hvd.allreduce(ones(2), op=hvd.Max if rank else hvd.Min), "its op is Min on rank 0 and Max on rank 1"),
        (lambda: hvd.allreduce(ones(2), op=hvd.Sum, prescale_factor=1.0 + rank), "its prescale and postscale factors is [1.0, 1.0] on rank 0"),
        (lambda: hvd.broadcast(ones(2), rank), "its root rank is 0 on rank 0 and 1 on rank 1"),
        (lambda: hvd.allgather(ones(2, 3 + rank)), "its type and shape without rows is [['torch.float32', 'rows', 3]] on rank 0"),
        (lambda: hvd.allgather(torch.tensor(1.0)), "no rows to gather"),
        (lambda: hvd.allgather(ones(2)) if rank else hvd.allreduce(ones(2)), "its operation is allreduce on rank 0 and allgather on rank 1"),
        (lambda: hvd.allreduce(ones(2), name=f"of {rank}"), "its name is of 0 on rank 0 and of 1 on rank 1"),
        (lambda: hvd.synchronize(hvd.allreduce_async(ones(2 + rank))), "ranks disagree about allreduce"),
        (lambda: hvd.grouped_allreduce([ones(2)] * (1 + rank)), "ranks disagree about allreduce"),
    ]
    for call, sentence in cases:
        text = raises(Internal, call)
        assert sentence in text, text
        equal(hvd.allreduce(ones(3), op=hvd.Sum), torch.full((3,), last + 1.0))


def check_waiting_for_what_another_rank_starts_only_behind_its_barrier():
    """Neither could ever go on, so both raise."""
    if hvd.size() == 1:
        return
    if hvd.rank() == 0:
        text = raises(Internal, hvd.synchronize, hvd.allgather_async(torch.ones(1), name="behind"))
    else:
        text = raises(Internal, hvd.barrier)
    assert "allgather on rank 0 and barrier on rank 1" in text, text
    equal(hvd.allreduce(torch.ones(3), op=hvd.Sum), torch.full((3,), float(hvd.size())))


def check_ranks_that_all_wait_for_different_operations():
    """Also where some rank has started them all: it goes on until it waits for another one."""
    n, rank = hvd.size(), hvd.rank()
    if n == 1:
        return
    names = [f"{rank}"] if rank + 1 < n or n == 2 else [*map(str, range(n))]
    handles = [hvd.allgather_async(torch.ones(1), name=name) for name in names]
    text = raises(Internal, hvd.synchronize, handles[-1])
    assert f"ranks disagree about allgather '0': its name is 0 on rank 0 and 1 on rank 1" in text, text
    equal(hvd.allreduce(torch.ones(3), op=hvd.Sum), torch.full((3,), float(n)))
    for handle in handles[:-1]:  # those of the last rank, which have waited for partners since
        hvd.poll(handle)
    if n > 2:
        others = [] if rank + 1 == n else [hvd.allgather_async(torch.ones(1), name=f"{other}") for other in reversed(range(n - 1))]
        for handle in handles[:-1] + others:
            equal(hvd.synchronize(handle), torch.ones(n))


def check_named_asynchronous_allreduces_that_disagree():
    if hvd.size() == 1:
        return
    for number in range(2):
        # A rank that starts it when two others have been compared hears of it at once.
        text = raises(Internal, lambda: hvd.synchronize(hvd.allreduce_async(torch.ones(2 + hvd.rank()), name=f"wrong {number}")))
        named = sum(f"{count} fp32, avg" in text for count in (2, 3, 4))  # any two of the ranks, whichever were compared first
        assert f"wrong {number}" in text and named == 2, text
        equal(hvd.synchronize(hvd.allreduce_async(torch.ones(3), name="right", op=hvd.Sum)), torch.full((3,), float(hvd.size())))


def check_names_in_flight():
    """A name is taken until its operation has completed, which it cannot before the others start it."""
    n, rank = hvd.size(), hvd.rank()
    if n == 1:
        return
    for start, kind, result in ((hvd.allreduce_async, "allreduce", torch.ones(1)), (hvd.allgather_async, "allgather", torch.ones(n))):
        first = start(torch.ones(1), name="one") if rank == 0 else None
        if rank == 0:
            assert f"{kind} 'one' was submitted twice" in raises(ValueError, start, torch.ones(1), name="one")
        hvd.barrier()
        first = first if first is not None else start(torch.ones(1), name="one")
        while not hvd.poll(first):
            pass
        second = start(torch.ones(1), name="one")  # though nobody has synchronized the first one
        equal(hvd.synchronize(first), result)
        if rank == 0:  # whose second one may have completed
            hvd.synchronize(second)
        hvd.barrier()
        if rank != 0:
            equal(hvd.synchronize(second), result)
    hvd.allreduce(torch.ones(1), name="one")


def check_what_is_refused_before_it_begins():
    assert "view_as_real" in raises(ValueError, hvd.allreduce, torch.ones(2, dtype=torch.complex64))
    assert "to_dense" in raises(ValueError, hvd.allreduce, torch.ones(2).to_sparse())
    assert "on meta" in raises(ValueError, hvd.allreduce, torch.ones(2, device="meta"))
    assert "not a torch.Tensor" in raises(ValueError, hvd.allreduce, [1.0])
    assert "at least one" in raises(ValueError, hvd.grouped_allreduce, [])
    assert "it is one of" in raises(ValueError, hvd.allreduce, torch.ones(1), op=17)
    assert "Adasum" in raises(ValueError, hvd.allreduce, torch.ones(1, dtype=torch.int32), op=hvd.Adasum)
    if hvd.size() == 3:
        assert "Adasum" in raises(NotImplementedError, hvd.allreduce, torch.ones(1), op=hvd.Adasum)
    n = hvd.size()
    assert "root_rank" in raises(ValueError, hvd.broadcast, torch.ones(1), n)
    assert "splits" in raises(ValueError, hvd.alltoall, torch.ones(n), splits=torch.ones(n))
    assert "splits" in raises(ValueError, hvd.alltoall, torch.ones(n), splits=[1] * (n + 1))
    assert "splits" in raises(ValueError, hvd.alltoall, torch.ones(n), splits=[2] * n)
    assert "splits" in raises(RuntimeError, hvd.alltoall, torch.ones(n), splits=[2] * n)  # Horovod's class
    assert n == 1 or "do not divide" in raises(ValueError, hvd.alltoall, torch.ones(n + 1))
    assert "no dimension" in raises(ValueError, hvd.reducescatter, torch.tensor(1.0))
    assert hvd.HostsUpdatedInterrupt(True).skip_sync


def check_optimizers_that_differ():
    if hvd.size() == 1:
        return
    model = nn.Linear(3, 2 + hvd.rank())
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    model(torch.ones(1, 3)).sum().backward()
    text = raises(Internal, optimizer.step)
    assert "ranks disagree about agreement 'DistributedOptimizer'" in text and "weight" in text, text


def check_forked_workers():
    """As those of a DataLoader."""
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    for _ in range(2):
        loaded = [float(one[0].sum()) for one in torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)]
        assert loaded == [6.0, 22.0]
        hvd.allreduce(torch.ones(1))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert "forked" in raises(Internal, hvd.allreduce, torch.ones(1))
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    hvd.barrier()


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
