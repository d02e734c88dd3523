"""bench/hosts' subject for Gloo through torch, with bench/host/measure.h's way of measuring: the buffer is rewritten by its
owner before each call, the time is the median of the calls on the slowest rank. Arguments: LARGEST_BYTES."""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
largest = int(sys.argv[1])
data = torch.zeros(largest // 4)


def measure(count):
    size_bytes = 4 * count
    calls = 100 if size_bytes <= 64 << 10 else 50 if size_bytes <= 1 << 20 else 20 if size_bytes <= 8 << 20 else 8
    part, times = data[:count], []
    for call in range(-calls // 4 - 2, calls):
        part.fill_(rank + (call + calls) % 7)
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(part)
        if call >= 0:
            times.append(1e6 * (time.perf_counter() - began))
    expected = sum(other + (2 * calls - 1) % 7 for other in range(size))
    if part[0] != expected or part[-1] != expected:
        print(f"wrong result: {part[0]} and {part[-1]} instead of {expected}, {count} elements", flush=True)
    slowest = torch.tensor([statistics.median(times)])
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest)


size_bytes = 8
while size_bytes <= largest:
    took = measure(size_bytes // 4)
    if rank == 0:
        print(f"gloo {size} {size_bytes} {took:.3f}", flush=True)
    size_bytes *= 8 if size_bytes < 1024 else 4
dist.destroy_process_group()
