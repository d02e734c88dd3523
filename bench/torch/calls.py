"""A rank that times short calls of torch.distributed, and training steps of a small CNN with DistributedDataParallel, by one back end:

    aiaccrun -np 2 build/torch-venv/bin/python bench/torch/calls.py aiacc       # with AIACC_TORCH_SHIM=0: Python alone
    torchrun --standalone --nproc-per-node 2 bench/torch/calls.py gloo

Microseconds a call: the median and the least of nine rounds, in each of which every call is timed. Rank 0 prints."""
import statistics
import sys
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn

ROUNDS, CALLS, STEPS = 9, 300, 30


def calls(size):
    two, all_of = torch.ones(2), torch.ones(2 * size)
    other = all_of.clone()
    yield "all_reduce of 8 B", lambda: dist.all_reduce(two)
    yield "the same, asynchronous, and wait", lambda: dist.all_reduce(two, async_op=True).wait()
    yield "the same, and its future", lambda: dist.all_reduce(two, async_op=True).get_future().wait()
    yield "broadcast of 8 B", lambda: dist.broadcast(two, 0)
    yield "all_gather_into_tensor", lambda: dist.all_gather_into_tensor(all_of, two)
    yield "reduce_scatter_tensor", lambda: dist.reduce_scatter_tensor(two, all_of)
    yield "all_to_all_single", lambda: dist.all_to_all_single(other, all_of)
    yield "barrier", dist.barrier
    if size == 2:
        peer, first = 1 - dist.get_rank(), dist.get_rank() == 0

        def there_and_back():
            for turn in (first, not first):
                dist.send(two, peer) if turn else dist.recv(two, peer)
        yield "send, and recv of an answer", there_and_back
    megabyte = torch.ones(1 << 18)
    yield "all_reduce of 1 MiB", lambda: dist.all_reduce(megabyte)


def step():
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.rand(16, 1, 8, 8), torch.randint(0, 10, (16,))

    def one():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return one


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    back_end = sys.argv[1]
    if back_end == "aiacc":
        import aiacc.torch  # noqa: F401
    dist.init_process_group(back_end)
    size = dist.get_world_size()
    works = []
    for what, call in [*calls(size), ("a step of DDP with a small CNN", step())]:
        try:
            for _ in range(20):
                call()
        except RuntimeError as error:  # what this version's Gloo lacks
            if dist.get_rank() == 0:
                print(f"{what}: {str(error).splitlines()[0]}")
            continue
        works.append((what, call, STEPS if "step" in what else CALLS, []))
    for _ in range(ROUNDS):
        for _, call, times, taken in works:
            began = time.perf_counter()
            for _ in range(times):
                call()
            taken.append((time.perf_counter() - began) / times * 1e6)
    if dist.get_rank() == 0:
        for what, _, _, taken in works:
            print(f"{what:34} {statistics.median(taken):9.1f} {min(taken):9.1f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
