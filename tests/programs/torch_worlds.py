"""Three ranks that make worlds of torch.distributed one after another in one process. Words: names of checks to run, or none for all. Each
rank says when it begins a check and when all is well."""
import hang_report

hang_report.after(250)

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import aiacc.torch

rank = int(os.environ["RANK"])


def start(backend, check, first_store, **keywords):
    dist.init_process_group(backend, store=dist.PrefixStore(check, first_store), rank=rank, world_size=3, **keywords)


def beside_a_default_group_of_gloo(store):
    """The first, as aiacc is not initialized yet."""
    start("gloo", "beside gloo", store)
    try:
        dist.new_group([rank], backend="aiacc", use_local_synchronization=True)
    except RuntimeError as error:
        assert "its first other group has all ranks" in str(error)
    everyone, one = dist.new_group(backend="aiacc"), dist.new_group([1], backend="aiacc")
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=everyone)
    if rank == 1:
        dist.all_reduce(tensor, group=one)
    assert tensor.item() == 3


def beside_gloo_after_a_smaller_world_of_aiacc(store):
    aiacc.torch.init()
    if rank == 1:
        dist.init_process_group("aiacc", store=dist.HashStore(), rank=0, world_size=1)
        dist.destroy_process_group()
    start("gloo", "after a smaller one", store)
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=dist.new_group(backend="aiacc"))
    assert tensor.item() == 3


def smaller_worlds_through_one_store(store):
    """The second finds no numbers of the first. (torch 1.13 itself does not let a store be used twice.)"""
    aiacc.torch.init()
    store = dist.PrefixStore("smaller", store)
    for world in ((0, 1), (2, 0), (1, 2), (0, 2, 1)):
        if rank in world:
            time.sleep(0.3 * (rank == world[-1]))
            dist.init_process_group("aiacc", store=store, rank=world.index(rank), world_size=len(world))
            tensor = torch.tensor([rank])
            dist.all_reduce(tensor)
            dist.destroy_process_group()
            assert tensor.item() == sum(world), (world, tensor)
        aiacc.torch.barrier()


def a_timeout_of_many_years(store):
    """More than an int of milliseconds holds: packages that want none give torch such a time."""
    start("aiacc", "years", store, timeout=timedelta(days=10000))
    dist.barrier(dist.new_group(timeout=timedelta(days=20000)))


def operations_that_outlive_modules(store):
    """The last: at the end of Python an operation that nobody waited for goes in silence."""
    start("aiacc", "outlive", store)
    torch.kept_for_long = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(9)]
    dist.barrier()


CHECKS = [beside_a_default_group_of_gloo, beside_gloo_after_a_smaller_world_of_aiacc, smaller_worlds_through_one_store, a_timeout_of_many_years,
          operations_that_outlive_modules]


def main():
    torch.set_num_threads(1)
    store, _, _ = next(dist.rendezvous("env://"))
    for check in [one for one in CHECKS if len(sys.argv) == 1 or one.__name__ in sys.argv[1:]]:
        print(f"{check.__name__} begins", flush=True)
        check(store)
        print(f"{check.__name__}: all is well", flush=True)
        if check is not CHECKS[-1] and dist.is_initialized():
            dist.destroy_process_group()
    hang_report.over()


if __name__ == "__main__":
    main()
