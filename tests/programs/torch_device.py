"""Ranks of one job check that tensors of another device than the CPU go through aiacc.torch and torch.distributed as those of the CPU do, and
stay where they are. The arguments: the compiled torch_device.cc, and the names of checks."""
import sys
import warnings

import torch
import torch.distributed as dist

import aiacc
import aiacc.torch as hvd
import torch_device_support
from aiacc.torch import work
from aiacc.torch._gradients import Slot, _holders
from torch_checks import close, equal, raises, run

BOARD = torch_device_support.board(sys.argv[1])


def there(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).to(BOARD)


def is_there(tensor, *values):
    assert tensor.device.type == "board", tensor.device
    close(tensor.cpu(), torch.tensor(values, dtype=tensor.dtype, device="cpu"))


def each():
    return hvd.rank() + 1.0, sum(range(1, hvd.size() + 1)), hvd.size()


def check_allreduce():
    mine, total, size = each()
    for name in (None, "on the engine"):
        given = there(mine, 2 * mine)
        is_there(hvd.allreduce(given, op=hvd.Sum, name=name), total, 2 * total)
        is_there(given, mine, 2 * mine)
        assert hvd.allreduce_(given, op=hvd.Sum, name=name) is given
        is_there(given, total, 2 * total)
    columns = torch.arange(6.0).reshape(2, 3).to(BOARD).t()  # has gaps
    is_there(hvd.allreduce(columns, op=hvd.Max)[0], 0, 3)
    for one, factor in zip(hvd.grouped_allreduce([there(mine), there(2 * mine, 3 * mine)], op=hvd.Sum), ((1,), (2, 3))):
        is_there(one, *(total * i for i in factor))
    whole = there(mine).requires_grad_()
    hvd.allreduce(whole, op=hvd.Sum).sum().backward()
    is_there(whole.grad, size)
    here = hvd.allreduce(there(mine, dtype=torch.float16), op=hvd.Average, compression=hvd.Compression.fp16)
    is_there(here, total / size)


def check_the_others():
    mine, total, size = each()
    rank = hvd.rank()
    rows = torch.full((rank + 1, 2), mine).to(BOARD)
    gathered = hvd.allgather(rows)
    assert gathered.device.type == "board" and gathered.shape == (total, 2)
    equal(gathered.cpu()[:, 0], torch.cat([torch.full((i + 1,), i + 1.0) for i in range(size)]))
    assert all(one.device.type == "board" for one in hvd.grouped_allgather([rows, rows]))
    is_there(hvd.broadcast(there(mine), size - 1), size)
    own = there(mine)
    assert hvd.broadcast_(own, size - 1) is own
    is_there(own, size)
    received, splits = hvd.alltoall(torch.arange(size * 1.0).to(BOARD), torch.ones(size, dtype=torch.int32))
    is_there(received, *[float(rank)] * size)
    assert splits.tolist() == [1] * size and splits.is_cpu
    _, splits = hvd.alltoall(torch.arange(size * 1.0).to(BOARD), torch.ones(size, dtype=torch.int32).to(BOARD))
    assert splits.device.type == "board"
    is_there(hvd.reducescatter(torch.arange(size * 1.0).to(BOARD), op=hvd.Sum), float(rank * size))
    is_there(hvd.synchronize(hvd.allreduce_async_(there(mine), op=hvd.Sum)), total)
    assert hvd.broadcast_object({"rank": rank}, 0) == {"rank": 0}


def net():
    torch.manual_seed(1)
    with torch.device("cpu"):
        return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))


def batch(step):
    made = torch.Generator("cpu").manual_seed(step * 100 + hvd.rank())
    return torch.randn(3, 4, generator=made, device="cpu"), torch.randn(3, 2, generator=made, device="cpu")


def trained(device, steps=3, **keywords):
    """The parameters, on the CPU."""
    model = net().to(device)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters(), **keywords)
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_optimizer_state(optimizer, 0)
    for step in range(steps):
        optimizer.zero_grad()
        given, wanted = batch(step)
        torch.nn.functional.mse_loss(model(given.to(device)), wanted.to(device)).backward()
        optimizer.step()
    assert all(one.grad.device.type == device.type and one.device.type == device.type for one in model.parameters())
    return [one.detach().cpu() for one in model.parameters()]


def check_training_is_that_of_the_cpu():
    for keywords in ({}, {"compression": hvd.Compression.fp16}, {"backward_passes_per_step": 1, "gradient_predivide_factor": 2.0}, {"op": hvd.Adasum}):
        if keywords.get("op") == hvd.Adasum and hvd.size() & (hvd.size() - 1):
            continue
        for ours, of_cpu in zip(trained(BOARD, **keywords), trained(torch.device("cpu"), **keywords)):
            close(ours, of_cpu, 1e-5)


def check_a_gradient_that_backward_does_not_make():
    model = net().to(BOARD)
    unused = torch.nn.Parameter(torch.ones(2).to(BOARD))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([*model.parameters(), unused], lr=0.1))
    model(torch.ones(1, 4).to(BOARD)).sum().backward()
    optimizer.step()
    is_there(unused, 1, 1)


def check_sync_batch_norm():
    if hvd.size() == 1:
        return
    results = []
    for device in (BOARD, torch.device("cpu")):
        layer = hvd.SyncBatchNorm(3).to(device)
        given = torch.randn(4, 3, 5, generator=torch.Generator("cpu").manual_seed(hvd.rank()), device="cpu").to(device).requires_grad_()
        made = layer(given)
        (made * made * made).sum().backward()
        assert made.device.type == given.grad.device.type == layer.weight.grad.device.type == layer.running_mean.device.type == device.type
        results.append([one.detach().cpu() for one in (made, given.grad, layer.weight.grad, layer.bias.grad, layer.running_mean, layer.running_var)])
    for ours, of_cpu in zip(*results):
        equal(ours, of_cpu)


def check_where_the_device_is_the_default():
    """What is made by the way is on the CPU all the same."""
    mine, total, size = each()
    on_cpu = torch.tensor([mine, mine], device="cpu")
    with BOARD:
        is_there(hvd.allreduce(there(mine), op=hvd.Sum, name="by default"), total)
        is_there(hvd.allreduce(torch.ones(2, 3).t(), op=hvd.Sum)[0], size, size)
        assert hvd.allgather(on_cpu).is_cpu and hvd.reducescatter(torch.ones(size, device="cpu"), op=hvd.Sum).is_cpu
        assert hvd.alltoall(torch.ones(size, device="cpu")).tolist() == [1.0] * size
        check_training_is_that_of_the_cpu()
        check_sync_batch_norm()


def check_no_gradient_stays_on_the_device():
    """Where the engine would take one of the CPU, on hosts of one rank."""
    for device, stays in ((BOARD, False), (torch.device("cpu"), True)):
        parameter = torch.nn.Parameter(torch.ones(4).to(device))
        slot = Slot(parameter, 0, torch.zeros(4), optional=True)
        assert slot.in_place == stays and (slot.may_stay(torch.ones(4).to(device)) == stays or not _holders)


def check_optimizer_state():
    mine, _, _ = each()
    model = net().to(BOARD)
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1 * mine).to(BOARD), foreach=False, capturable=False)
    if hvd.rank() == 0:
        model(torch.ones(1, 4).to(BOARD)).sum().backward()
        for one in model.parameters():
            optimizer.state[one] = {"step": torch.tensor(3.0), "exp_avg": torch.ones_like(one), "exp_avg_sq": torch.ones_like(one)}
    hvd.broadcast_optimizer_state(optimizer, 0)
    is_there(optimizer.param_groups[0]["lr"].reshape(1), 0.1)
    for one in model.parameters():
        state = optimizer.state[one]
        assert state["exp_avg"].device.type == "board" and state["step"].is_cpu and state["step"].item() == 3


def check_copies_back_have_ended():
    """Torch only begins those into tensors with gaps."""
    waits = torch_device_support.Stream.waits
    hvd.allreduce_(torch.ones(2, 3).to(BOARD).t(), op=hvd.Sum)
    assert torch_device_support.Stream.waits > waits


def check_a_future_of_a_device_raises_the_error_itself():
    future = work._Future([torch.device("meta:0")])
    future.complete(None, work.failure(aiacc.Timeout("it is late")))
    assert "it is late" in raises(aiacc.Timeout, future.wait)


def check_what_takes_tensors_of_the_cpu_only():
    head = hvd.ShardedSoftmax(4, 10)
    assert "call .cpu() first" in raises(ValueError, head, torch.ones(2, 4).to(BOARD), torch.zeros(2, dtype=torch.int64))
    raises(AssertionError, hvd.mpi_ops._tensors.buffer_of, there(1.0))
    assert "no elements" in raises(ValueError, hvd.allreduce, torch.ones(2, device="meta"))


# --- torch.distributed

def check_process_group():
    mine, total, size = each()
    rank = hvd.rank()
    dist.init_process_group("aiacc")
    own = there(mine, 2 * mine)
    dist.all_reduce(own)
    is_there(own, total, 2 * total)
    begun = dist.all_reduce(own, op=dist.ReduceOp.MAX, async_op=True)
    is_there(begun.get_future().then(lambda one: one.value()[0]).wait(), total, 2 * total)
    begun.wait()
    dist.broadcast(own := there(mine), size - 1)
    is_there(own, size)
    dist.reduce(own := there(mine), 0)
    is_there(own, total if rank == 0 else mine)
    blocks = [there(0.0) for _ in range(size)]
    dist.all_gather(blocks, there(mine))
    for i, one in enumerate(blocks):
        is_there(one, i + 1)
    dist.all_gather_into_tensor(whole := torch.zeros(size).to(BOARD), there(mine))
    is_there(whole, *range(1, size + 1))
    dist.reduce_scatter_tensor(own := there(0.0), whole)
    is_there(own, size * mine)
    dist.reduce_scatter(own := there(0.0), [there(i + 1.0) for i in range(size)])
    is_there(own, size * mine)
    dist.all_to_all_single(own := torch.zeros(size).to(BOARD), torch.full((size,), mine).to(BOARD))
    is_there(own, *range(1, size + 1))
    blocks = [there(0.0) for _ in range(size)]
    dist.all_to_all(blocks, [there(mine) for _ in range(size)])
    for i, one in enumerate(blocks):
        is_there(one, i + 1)
    blocks = [there(0.0) for _ in range(size)] if rank == 0 else None
    dist.gather(there(mine), blocks)
    for i, one in enumerate(blocks or []):
        is_there(one, i + 1)
    dist.scatter(own := there(0.0), [there(i + 1.0) for i in range(size)] if rank == 0 else None)
    is_there(own, mine)
    if size > 1:
        sent = dist.isend(there(mine), (rank + 1) % size, tag=3)
        dist.recv(own := there(0.0), (rank - 1) % size, tag=3)
        sent.wait()
        is_there(own, (rank - 1) % size + 1)
    said = [None] * size
    dist.all_gather_object(said, rank)
    assert said == list(range(size))
    model, of_cpu = (torch.nn.parallel.DistributedDataParallel(net().to(device), bucket_cap_mb=1) for device in (BOARD, torch.device("cpu")))
    given, _ = batch(0)
    for one, device in ((model, BOARD), (of_cpu, torch.device("cpu"))):
        one(given.to(device)).sum().backward()
    for ours, theirs in zip(model.parameters(), of_cpu.parameters()):
        assert ours.grad.device.type == "board"
        close(ours.grad.cpu(), theirs.grad)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # torch's, of names that are deprecated, and of results that go through its CPU
    run(dict(globals()), sys.argv[2:])
