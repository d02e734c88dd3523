"""bench/hosts' subject for Gloo through torch, with bench/host/measure.h's way of measuring: the input is rewritten by its
owner before each call, the time is the median of the calls on the slowest rank. Arguments: LARGEST_BYTES [COLLECTIVE
[PAUSE_US]]."""
import statistics
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
largest = int(sys.argv[1])
what = sys.argv[2] if len(sys.argv) > 2 else "allreduce"
pause_s = float(sys.argv[3]) * 1e-6 if len(sys.argv) > 3 else 0
SENDS_BLOCKS = what in ("reduce_scatter", "alltoall", "scatter")
RECEIVES_BLOCKS = what in ("allgather", "alltoall", "gather")


def call(send, recv):
    """Where its result is."""
    if what == "allreduce":
        dist.all_reduce(send)
        return send
    if what == "broadcast":
        dist.broadcast(send, 0)
        return send
    if what == "allgather":
        dist.all_gather(list(recv.chunk(size)), send)
    elif what == "reduce_scatter":
        dist.reduce_scatter_tensor(recv, send)
    elif what == "alltoall":
        dist.all_to_all_single(recv, send)
    elif what == "reduce":
        dist.reduce(send, 0)
        return send
    elif what == "gather":
        dist.gather(send, list(recv.chunk(size)) if rank == 0 else None, 0)
    elif what == "scatter":
        dist.scatter(recv, list(send.chunk(size)) if rank == 0 else None, 0)
    else:
        sys.exit(f"there is no collective {what} here")
    return recv


def expected(number, place):
    """Of the result of that call: its first element (place 0), or its last (size - 1)."""
    values = [other + number % 7 for other in range(size)]
    if what in ("allreduce", "reduce", "reduce_scatter"):
        return sum(values)
    return values[place] if RECEIVES_BLOCKS else values[0]


def measure(count):
    send = torch.zeros(count * size if SENDS_BLOCKS else count)
    recv = torch.zeros(count * size if RECEIVES_BLOCKS else count)
    size_bytes = 4 * max(send.numel(), recv.numel())
    calls = 100 if size_bytes <= 64 << 10 else 50 if size_bytes <= 1 << 20 else 20 if size_bytes <= 8 << 20 else 8
    times = []
    for number in range(-calls // 4 - 2, calls):
        send.fill_(rank + (number + calls) % 7)
        time.sleep(pause_s)
        dist.barrier()
        began = time.perf_counter()
        result = call(send, recv)
        if number >= 0:
            times.append(1e6 * (time.perf_counter() - began))
    if what not in ("reduce", "gather") or rank == 0:
        wanted = expected(2 * calls - 1, 0), expected(2 * calls - 1, size - 1)
        if (result[0], result[-1]) != wanted:
            print(f"wrong result: {result[0]} and {result[-1]} instead of {wanted}, {count} elements", flush=True)
    slowest = torch.tensor([statistics.median(times)])
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest)


size_bytes = 8
while size_bytes <= largest:
    elements = size_bytes // 4 // (size if SENDS_BLOCKS or RECEIVES_BLOCKS else 1)
    if elements > 0:
        took = measure(elements)
        if rank == 0:
            print(f"gloo {size} {size_bytes} {took:.3f}", flush=True)
    size_bytes *= 8 if size_bytes < 1024 else 4
dist.destroy_process_group()
