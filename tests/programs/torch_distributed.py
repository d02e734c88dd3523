"""A rank of a torch.distributed job on the back end aiacc: every function check_... is a test; all ranks call them in one order.
Words: names of checks to run, or none for all."""
import hang_report

hang_report.after(45)  # torch's own rendezvous gives up after 60 s

import atexit
import gc
import os
import sys
import threading
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist


@atexit.register  # before aiacc's, and therefore after these
def no_thread_is_left():
    """One that frees a tensor while Python ends would abort the process."""
    left = [thread.name for thread in threading.enumerate() if thread.name == "aiacc future"]
    if left:
        print(f"left at the end: {left}", file=sys.stderr)
        os._exit(7)


import aiacc
import aiacc.torch  # noqa: F401: registers the back end

from torch_checks import equal, raises, version  # noqa: E402
from torch_layers import *  # noqa: E402, F401, F403: its checks run here, too
from torch_profilers import *  # noqa: E402, F401, F403: and its

TORCH_2 = version() >= (2, 0)
rank = size = 0


def filled(value, *shape, dtype=torch.float32):
    return torch.full(shape, value).to(dtype)


def check_names():
    assert dist.get_backend() == "aiacc" and aiacc.size() == size
    store = dist.distributed_c10d._get_default_group().get_group_store()
    store.set(f"of rank {rank}", "there")
    assert store.get(f"of rank {(rank + 1) % size}") == b"there"


def check_functions_that_torch_has_for_gloo_and_nccl():
    """First of all: torch names groups of which only members know by how many groups each has, so these must be as many on all members."""
    if hasattr(dist, "split_group") and size > 1:
        part = dist.split_group(None, [[0], list(range(1, size))])
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=part)
        assert tensor.item() == (1 if rank == 0 else size - 1)
        is_new = version() >= (2, 14)
        assert (dist.split_group(None, [[0]]) in (None, dist.GroupMember.NON_GROUP_MEMBER)) == (rank > 0)
        assert "duplicate" in raises(ValueError, dist.split_group, None, [[0, 0]])
        turned = list(range(size))[::-1]
        assert dist.get_process_group_ranks(dist.split_group(None, [turned])) == (turned if is_new else turned[::-1])
    if hasattr(dist.distributed_c10d, "_set_pg_timeout") and size > 1:
        group = dist.new_group(list(range(size)))
        dist.distributed_c10d._set_pg_timeout(timedelta(milliseconds=500), group)
        if rank == 0:
            assert "timeout" in raises(RuntimeError, dist.all_reduce, torch.ones(1), group=group)


def check_allreduce_of_each_type():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
                  torch.complex64, torch.complex128):
        tensor = filled(rank + 1, 5, 3, dtype=dtype)
        dist.all_reduce(tensor)
        equal(tensor, filled(size * (size + 1) // 2, 5, 3, dtype=dtype))


def check_allreduce_by_each_operator():
    for op, expected in ((dist.ReduceOp.MAX, size), (dist.ReduceOp.MIN, 1), (dist.ReduceOp.PRODUCT, [1, 1, 2, 6, 24][size]),
                         (dist.ReduceOp.AVG, (size + 1) / 2)):
        tensor = torch.tensor([rank + 1.0])
        dist.all_reduce(tensor, op=op)
        assert tensor.item() == expected, (op, tensor)
    bits = torch.tensor([1 << rank | 128])
    dist.all_reduce(bits, op=dist.ReduceOp.BOR)
    assert bits.item() == 128 | ((1 << size) - 1)
    dist.all_reduce(bits, op=dist.ReduceOp.BAND)
    assert bits.item() == 128 | ((1 << size) - 1)
    dist.all_reduce(bits, op=dist.ReduceOp.BXOR)
    assert bits.item() == (0 if size % 2 == 0 else 128 | ((1 << size) - 1))
    if TORCH_2:  # torch 1 does not say the factor
        tensor = torch.tensor([rank + 1.0])
        dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(0.5))
        assert tensor.item() == size * (size + 1) / 4
        assert "factor" in raises(ValueError, dist.all_reduce, tensor, op=dist._make_nccl_premul_sum(0.0))
    one_is_true = torch.tensor([rank == 0, True, False])
    dist.all_reduce(one_is_true)
    assert one_is_true.tolist() == [True, True, False]


def check_odd_forms():
    strided = torch.arange(6.0).reshape(2, 3).t()
    dist.all_reduce(strided)
    equal(strided, size * torch.arange(6.0).reshape(2, 3).t())
    dist.all_reduce(torch.empty(0))
    scalar = torch.tensor(1.0)
    dist.all_reduce(scalar)
    assert scalar.item() == size
    columns = torch.zeros(4, 2).t()
    dist.broadcast(columns if rank else columns.add_(3), 0)
    equal(columns, filled(3.0, 2, 4))


def check_modes_of_autograd():
    """Results are copied by any thread into tensors of inference mode, and into parameters whose elements have gaps."""
    with torch.inference_mode():
        gathered, column = [torch.zeros(2) for _ in range(size)], torch.ones(3, 2)[:, 1]
        works = [dist.all_gather(gathered, filled(float(rank), 2), async_op=True), dist.all_reduce(column, async_op=True)]
        futures = [work.get_future() for work in works]
        dist.barrier()
        for future in futures:
            future.wait()
        assert [one.tolist() for one in gathered] == [[float(i)] * 2 for i in range(size)] and column.tolist() == [size] * 3
    weight = torch.nn.Parameter(filled(float(rank), 3, 2).t())
    dist.broadcast(weight, 0)
    dist.all_gather([torch.nn.Parameter(torch.zeros(2)) for _ in range(size)], torch.ones(2))
    assert weight.detach().count_nonzero() == 0 and weight.requires_grad


def check_elements_that_memory_has_otherwise():
    negative = torch.tensor([1 + 2j]).conj().imag
    single = torch.ones(1).expand(1).as_strided((1,), (0,))
    for given, expected in ((negative, -2.0), (single, 1.0)):
        gathered = [torch.zeros(1) for _ in range(size)]
        dist.all_gather(gathered, given)
        assert [one.item() for one in gathered] == [expected] * size
        dist.all_to_all(gathered, [given] * size)
        dist.broadcast(given, 0)
        assert given.item() == gathered[-1].item() == expected


def check_options_of_a_group():
    group = dist.new_group(list(range(size)), timeout=timedelta(seconds=77))
    options = (group._get_backend(torch.device("cpu")) if TORCH_2 else group).options
    assert options.backend == "aiacc" and options._timeout == timedelta(seconds=77)
    assert options.global_ranks_in_group == list(range(size)) and options.group_name == group.getGroupName()
    group.set_timeout(timedelta(seconds=5))
    assert group.options._timeout == timedelta(seconds=5)


def check_what_torch_asks_of_a_group():
    """Checkpoints of torch 2 want to know where its tensors are, fully_shard where they could be."""
    group = dist.distributed_c10d._get_default_group()
    assert group._device_types == [torch.device("cpu")]
    backend = group._get_backend(torch.device("cpu"))
    assert not (backend.supports_splitting or backend.supports_coalescing or backend.supports_tensor_alloc(torch.device("cpu")))
    assert not (group.supports_reconfigure or group.supports_window or group.supports_abort_hooks)


def check_futures_and_polling():
    work = dist.all_reduce(torch.ones(3), async_op=True)
    while not work.is_completed():
        pass
    assert work.wait() and work.is_success()
    tensor = torch.ones(3)
    doubled = dist.all_reduce(tensor, async_op=True).get_future().then(lambda future: 2 * future.value()[0])
    equal(doubled.wait(), filled(2.0 * size, 3))
    many = [(one, dist.all_reduce(one, async_op=True)) for one in (filled(float(i), 1000) for i in range(50))]
    for i, (one, work) in enumerate(many):
        work.wait()
        equal(one, filled(float(i * size), 1000))


def check_broadcast_gather_scatter():
    for root in range(size):
        tensor = filled(rank, 4)
        dist.broadcast(tensor, root)
        equal(tensor, filled(root, 4))
        blocks = [torch.zeros(2) for _ in range(size)] if rank == root else None
        dist.gather(filled(float(rank), 2), blocks, root)
        assert rank != root or [one.tolist() for one in blocks] == [[float(i)] * 2 for i in range(size)]
        mine = torch.zeros(2)
        dist.scatter(mine, [filled(float(i), 2) for i in range(size)] if rank == root else None, root)
        equal(mine, filled(float(rank), 2))
        total = torch.ones(2)
        dist.reduce(total, root)
        assert rank != root or total.tolist() == [size] * 2


def check_allgather():
    for dtype in (torch.float32, torch.bool, torch.int64):
        blocks = [torch.zeros(3, dtype=dtype) for _ in range(size)]
        dist.all_gather(blocks, filled(rank, 3, dtype=dtype))
        for i, block in enumerate(blocks):
            equal(block, filled(i, 3, dtype=dtype))
    uneven = [torch.zeros(i + 1) for i in range(size)]
    dist.all_gather(uneven, filled(float(rank), rank + 1))
    for i, block in enumerate(uneven):
        equal(block, filled(float(i), i + 1))
    whole = torch.zeros(2 * size)
    whole[2 * rank:2 * rank + 2] = rank
    dist.all_gather_into_tensor(whole, whole[2 * rank:2 * rank + 2])
    equal(whole, torch.arange(float(size)).repeat_interleave(2))


def check_reduce_scatter():
    mine = torch.zeros(2)
    dist.reduce_scatter_tensor(mine, torch.arange(2.0 * size))
    equal(mine, size * torch.arange(2.0 * rank, 2.0 * rank + 2))
    dist.reduce_scatter_tensor(mine, torch.arange(2.0 * size), op=dist.ReduceOp.AVG)
    equal(mine, torch.arange(2.0 * rank, 2.0 * rank + 2))
    uneven = torch.zeros(rank + 1)
    dist.reduce_scatter(uneven, [filled(float(i), i + 1) for i in range(size)])
    equal(uneven, filled(float(size * rank), rank + 1))


def check_alltoall():
    found = torch.zeros(size)
    dist.all_to_all_single(found, torch.arange(float(size)) + 10 * rank)
    equal(found, 10 * torch.arange(float(size)) + rank)
    sent = torch.full((sum(range(1, size + 1)), 2), float(rank))  # i + 1 rows to rank i
    rows = torch.zeros((rank + 1) * size, 2)
    dist.all_to_all_single(rows, sent, [rank + 1] * size, list(range(1, size + 1)))
    equal(rows, torch.arange(float(size)).repeat_interleave(rank + 1)[:, None].repeat(1, 2))
    blocks = [torch.zeros(2) for _ in range(size)]
    dist.all_to_all(blocks, [filled(10.0 * rank + i, 2) for i in range(size)])
    assert [one[0].item() for one in blocks] == [10.0 * i + rank for i in range(size)]


def check_objects():
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank, "pad": "x" * rank})
    assert [one["rank"] for one in found] == list(range(size))
    some = [rank, "text"] if rank == 0 else [None, None]
    dist.broadcast_object_list(some, 0)
    assert some == [0, "text"]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {i}" for i in range(size)] if rank == 0 else None, 0)
    assert mine == [f"for {rank}"]
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(rank, gathered, 0)
    assert rank or gathered == list(range(size))


def check_messages():
    if size == 1:
        return
    right, left = (rank + 1) % size, (rank - 1) % size
    operations = [dist.P2POp(dist.isend, filled(float(rank), 2), right), dist.P2POp(dist.irecv, torch.zeros(2), left)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    equal(operations[1].tensor, filled(float(left), 2))
    if rank == 0:  # by tag, in another order than they were sent; then from whom comes first
        one, two = torch.zeros(1), torch.zeros(1)
        dist.recv(two, 1, tag=2)
        dist.recv(one, 1, tag=1 << 31)
        assert (one.item(), two.item()) == (1, 2)
        found = {}
        for _ in range(size - 1):
            tensor = torch.zeros(1)
            source = dist.recv(tensor)
            found[source] = tensor.item()
        assert found == {i: float(i) for i in range(1, size)}
    else:
        if rank == 1:
            dist.send(torch.tensor([1.0]), 0, tag=1 << 31)
            dist.send(torch.tensor([2.0]), 0, tag=2)
        dist.send(torch.tensor([float(rank)]), 0)


def check_coalescing_with_a_device():
    """As DeepSpeed and programs for NCCL coalesce: one Work for all that began."""
    group = dist.distributed_c10d._get_default_group()
    mine, right = filled(rank, 3), (rank + 1) % size
    gathered = [torch.empty(3 * size), torch.empty(6 * size)]
    total, long = filled(1, 5), filled(1, 1 << 21)
    taken = torch.empty(3)
    for _ in range(2):
        if version() >= (2, 1):
            with dist.distributed_c10d._coalescing_manager(group, torch.device("cpu"), async_ops=True) as manager:
                for output, part in zip(gathered, (mine, mine.repeat(2))):
                    dist.all_gather_into_tensor(output, part, async_op=True)
            manager.wait()
            equal(gathered[0], torch.arange(size).repeat_interleave(3).float())
            equal(gathered[1], torch.arange(size).repeat_interleave(6).float())
            with dist.distributed_c10d._coalescing_manager(group, torch.device("cpu")):  # waits itself
                dist.all_reduce(total)
            equal(total, filled(size ** (_ + 1), 5))
        device = (torch.device("cpu"),) if TORCH_2 else ()  # torch 1.13 asks for no device, and hands the requests over at the end
        group._start_coalescing(*device)
        dist.isend(mine, right), dist.irecv(taken, (rank - 1) % size), dist.all_reduce(long, async_op=True)
        work = group._end_coalescing(*device or ([],))
        assert work.wait() and work.is_completed()
        equal(taken, filled((rank - 1) % size, 3))
        equal(long[-2:], filled(size ** (_ + 1), 2))
    group._start_coalescing(*device)
    assert group._end_coalescing(*device or ([],)).wait()


def check_groups():
    everyone = dist.new_group(list(range(size)))
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=everyone)
    assert tensor.item() == size
    groups = [dist.new_group([first, size - 1]) for first in range(size - 1)]
    for first, group in enumerate(groups):
        if rank in (first, size - 1):
            tensor = torch.tensor([float(rank)])
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == first + size - 1
            dist.broadcast(tensor, size - 1, group=group)
    dist.destroy_process_group(everyone)


def check_barriers():
    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=20))


def check_sparse():
    tensor = torch.sparse_coo_tensor([[rank, rank + 1]], [1.0, 2.0], (size + 1,))
    dist.all_reduce(tensor)
    equal(tensor.to_dense(), torch.tensor([1.0] + [3.0] * (size - 1) + [2.0]))


def check_arguments():
    assert "on meta" in raises(ValueError, dist.all_reduce, torch.ones(1, device="meta"))
    raises((ValueError, RuntimeError), dist.all_reduce, torch.ones(1, dtype=torch.complex64), op=dist.ReduceOp.MAX)
    if TORCH_2:
        assert "elements for" in raises(ValueError, dist.all_gather_into_tensor, torch.zeros(size + 1), torch.zeros(1))
        assert "split sizes" in raises(ValueError, dist.all_to_all_single, torch.zeros(size), torch.zeros(size), [size + 1] * size, [1] * size)
    dist.barrier()  # nothing was started: the group is well


def check_calls_of_the_group_itself():
    """As torch's own tests call it: a tensor by itself, root and operator by name, and several tensors of each rank."""
    group = dist.distributed_c10d._get_default_group()
    tensor = torch.tensor([rank + 1.0])
    group.allreduce(tensor, op=dist.ReduceOp.MAX).wait()
    assert tensor.item() == size
    group.broadcast(tensor.fill_(rank), root=size - 1).wait()
    assert tensor.item() == size - 1
    blocks = [torch.zeros(1) for _ in range(size)]
    gathered = group.allgather(blocks, torch.tensor([float(rank)])).get_future().wait()
    assert [one.item() for one in gathered] == list(range(size))
    group.scatter(tensor, blocks if rank == 0 else [], root=0).wait()
    assert tensor.item() == rank
    pair = [torch.tensor([2.0 * rank]), torch.tensor([2.0 * rank + 1])]
    group.allreduce(pair).wait()
    assert [one.item() for one in pair] == [size * (2 * size - 1)] * 2
    lists = [[torch.zeros(1) for _ in range(2 * size)] for _ in range(2)]
    group.allgather(lists, [torch.tensor([2.0 * rank]), torch.tensor([2.0 * rank + 1])]).wait()
    assert all([one.item() for one in each] == list(range(2 * size)) for each in lists)


def check_words_of_refusals():
    """RuntimeErrors in Gloo's words, and nothing was started."""
    group, one, double, two = dist.distributed_c10d._get_default_group(), torch.zeros(1), torch.zeros(1).double(), torch.zeros(2)
    for words, call in (("invalid root rank", lambda: group.broadcast(one, root=size)), ("invalid root rank", lambda: group.reduce(one, root=-1)),
                        ("invalid tensor type", lambda: group.allreduce([one, double])), ("invalid tensor size", lambda: group.allreduce([one, two])),
                        ("requires non-empty tensor list", lambda: group.allreduce([])),
                        ("tensors must all have the same type", lambda: group.allreduce_coalesced([one, double])),
                        ("requires a single-element output list", lambda: group.gather([], one, root=rank)),
                        (f"Incorrect input list size {size + 1}", lambda: group.scatter(one, [one] * (size + 1), root=rank)),
                        ("invalid output tensor list", lambda: group.allgather([[one] * (size + 1)], [one])),
                        ("unsupported reduction operation", lambda: group.allreduce(one.to_sparse(), op=dist.ReduceOp.MAX))):
        assert words in raises(RuntimeError, call), words
    dist.barrier()


def check_futures_of_fp16():
    """They hold a list of tensors for C++ too."""
    half = filled(rank + 1, 3, dtype=torch.float16)
    doubled = dist.all_reduce(half, async_op=True).get_future().then(lambda future: 2 * future.value()[0])
    equal(doubled.wait(), filled(size * (size + 1), 3, dtype=torch.float16))
    if size > 1:
        group = dist.new_group(list(range(size)))
        group.set_timeout(timedelta(milliseconds=500))  # not before all have made it
        if rank == 0:
            work = dist.all_reduce(half, group=group, async_op=True)
            assert "timeout" in raises(RuntimeError, work.get_future().wait)
            assert "timeout" in raises(RuntimeError, work.wait)


def check_what_only_cpp_holds():
    """Functional collectives of torch 2.6 drop the Python half of what the group returns, and wait for it in C++."""
    group = dist.distributed_c10d._get_default_group()
    for call in (group.allgather_into_tensor_coalesced, lambda given, taken: group.reduce_scatter_tensor_coalesced(taken, given)):
        short, long = [torch.ones(1)], [torch.ones(size)]
        held = weakref.ref(call(long, short))
        gc.collect()
        assert held() is not None
        held().wait()
        assert long[0].tolist() == [1.0] * size and short[0].item() in (1.0, size)
    for _ in range(4):  # it asks for the future behind the end
        call([torch.ones(size)], [torch.ones(1)]).wait()
    gc.collect()
    assert held() is None


def main():
    global rank, size
    torch.set_num_threads(1)
    dist.init_process_group("aiacc", timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    for name, check in list(globals().items()):
        if name.startswith("check_") and (len(sys.argv) == 1 or name in sys.argv[1:]):
            try:
                check()
            except BaseException:
                print(f"rank {rank} of {size}: {name} failed", file=sys.stderr, flush=True)
                raise
    store = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    # The job goes on: a default group of the even ranks and one of the odd ones, then one with all ranks in another order.
    if len(sys.argv) == 1:
        if size > 1:
            some = list(range(rank % 2, size, 2))
            dist.init_process_group("aiacc", store=dist.PrefixStore(f"from {some[0]}", store), rank=rank // 2, world_size=len(some))
            for group in (None, dist.new_group(list(range(len(some))))):
                tensor = torch.tensor([rank])
                dist.all_reduce(tensor, group=group)
                assert tensor.item() == sum(some)
            dist.destroy_process_group()
        dist.init_process_group("aiacc", store=dist.PrefixStore("again", store), rank=size - 1 - rank, world_size=size)
        tensor = torch.tensor([dist.get_rank()])
        dist.broadcast(tensor, 0)
        assert tensor.item() == 0
        dist.destroy_process_group()
    hang_report.over()
    print("all is well", flush=True)


if __name__ == "__main__":
    main()
