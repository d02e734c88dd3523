"""Rank 0 starts the other ranks by torch.multiprocessing and joins them before it leaves, as torchrl's collectors do. Words: how many ranks, and
whether they call destroy_process_group."""
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import aiacc.torch  # noqa: F401: registers the back end


def work(rank, size, store, destroys):
    dist.init_process_group("aiacc", init_method=f"file://{store}", rank=rank, world_size=size)
    sums = torch.full((1000,), rank + 1.0)
    dist.all_reduce(sums)
    assert sums.eq(size * (size + 1) / 2).all(), sums
    if rank > 0:
        dist.send(torch.full((1000,), float(rank)), 0)
        if destroys:
            dist.destroy_process_group()


def main(size, destroys):
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store"
        others = [mp.get_context("spawn").Process(target=work, args=(rank, size, store, destroys)) for rank in range(1, size)]
        for each in others:
            each.start()
        work(0, size, store, destroys)
        for each in others:
            each.join()
        for rank in range(1, size):
            got = torch.zeros(1000)
            dist.recv(got, rank)
            assert got.eq(rank).all(), got
        if destroys:
            dist.destroy_process_group()
    print([each.exitcode for each in others])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "destroys")
