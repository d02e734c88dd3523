"""The back end `aiacc` of torch.distributed: how it becomes known to torch, and how its process groups are made.

    import aiacc.torch                       # not needed with torch 2.5 or later, where the package was installed by pip
    torch.distributed.init_process_group("aiacc")

Under aiaccrun ranks find each other by its agents, under torchrun and elsewhere through torch's store.
"""
from __future__ import annotations

import ctypes as c
import multiprocessing
import os
import weakref
import zlib
from datetime import timedelta
from typing import Any, List

import torch.distributed as dist

import aiacc
from aiacc.torch._functions import let_in
from aiacc.torch._shim import with_short_ways
from aiacc.torch.process_group import AiaccProcessGroup
from aiacc.torch.work import failure

_aiacc_ranks: List[int] = []  # by the global rank in torch's world of now
_worlds = 0


def _forget_with(default: Any) -> None:
    """The numbers are those of the world of this group."""
    global _worlds
    _worlds += 1

    def forget(world: int) -> None:
        if world == _worlds:
            _aiacc_ranks.clear()
    weakref.finalize(default, forget, _worlds).atexit = False


def _is_launched() -> bool:
    """Whether this process is the one that aiaccrun started as a rank. Those that such a process starts, by multiprocessing or torchrun,
    have its environment and are ranks of torch of their own, which meet through torch's store."""
    return "AIACC_AGENT" in os.environ and "TORCHELASTIC_RUN_ID" not in os.environ and multiprocessing.parent_process() is None


def _join_job(store: Any, rank: int, size: int, timeout: timedelta) -> None:
    if aiacc.initialized():
        return
    limit = timeout.total_seconds()
    if _is_launched():
        aiacc.init(timeout=limit)
    else:
        aiacc.init(rank=rank, size=size, store=store, timeout=limit)


def _ranks_by_store(rank: int, size: int, store: Any) -> List[int]:
    """Nobody leaves before the last one has taken the numbers out of the store, through which another world may meet next. The key by which
    a process is told of that is its own, and not that of its rank in this world."""
    numbers = [f"aiacc rank of {one}" for one in range(size)]
    store.set(numbers[rank], str(aiacc.rank()))
    found = [int(store.get(one)) for one in numbers]
    readers, over = "aiacc ranks that have read", "aiacc has read for {}"
    if store.add(readers, 1) == size:
        for one in (*numbers, readers):
            store.delete_key(one)
        for other in found:
            store.set(over.format(other), "yes")
    mine = over.format(aiacc.rank())
    store.get(mine)
    store.delete_key(mine)
    return found


def _learn_ranks(rank: int, size: int, store: Any) -> None:
    """Which rank of aiacc each rank of torch is; equal where a launcher gave both their numbers. A world of torch may have some of the
    job's ranks, which meet through its store."""
    if aiacc.size() < size:
        raise RuntimeError(f"torch.distributed was given a world of {size} ranks, and the job of aiacc has {aiacc.size()}: it has them all, or some")
    if aiacc.size() > size:
        _aiacc_ranks[:] = _ranks_by_store(rank, size, store)
        return
    ranks = (c.c_int * size)()
    mine = (c.c_int * 1)(rank)
    aiacc.WORLD.allgather(mine, ranks)
    by_torch = {number: place for place, number in enumerate(ranks)}
    if sorted(by_torch) != list(range(size)):
        raise RuntimeError(f"the ranks that torch.distributed was given are {list(ranks)}, and must be 0 to {size - 1}")
    _aiacc_ranks[:] = [by_torch[number] for number in range(size)]


def _meet_beside(store: Any, timeout: timedelta) -> None:
    """All ranks of a default group that is another back end's."""
    mine, everyone = dist.get_rank(), dist.get_world_size()
    if not aiacc.initialized():
        _join_job(store, mine, everyone, timeout)
        _learn_ranks(mine, everyone, store)
    elif aiacc.size() != everyone or aiacc.rank() != mine:
        raise RuntimeError(f"this process is rank {mine} of {everyone} for torch.distributed and rank {aiacc.rank()} of {aiacc.size()} for "
                           "aiacc: they must agree")
    else:
        _aiacc_ranks[:] = range(everyone)
    _forget_with(dist.distributed_c10d._get_default_group())


def meet_beside_default() -> None:
    """Before a group of aiacc that need not have all ranks, where all ranks make it. Does nothing where they have met."""
    if dist.is_initialized() and not _aiacc_ranks:
        c10d: Any = dist.distributed_c10d
        try:
            _meet_beside(dist.PrefixStore("aiacc beside the default group", c10d._get_default_store()), c10d.default_pg_timeout)
        except aiacc.Error as error:
            raise failure(error) from None


def create(options: Any, _: Any = None) -> AiaccProcessGroup:
    """The factory that torch.distributed calls, for the default group on every rank, for others on their members."""
    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    members = list(options.global_ranks_in_group)
    try:
        if not members:  # the default group
            members = list(range(size))
            _join_job(options.store, rank, size, timeout)
            _learn_ranks(rank, size, options.store)
        elif not _aiacc_ranks:  # the default group is another back end's
            if not aiacc.initialized() and size != dist.get_world_size():
                raise RuntimeError("the default group is not one of the back end aiacc: its first other group has all ranks, unless "
                                   "aiacc.torch.init() was called on all of them before")
            _meet_beside(options.store, timeout)
        name = str(options.group_id)
        group = aiacc.WORLD.create([_aiacc_ranks[one] for one in members], name=f"torch.distributed {name}", key=_key(name),
                                   timeout=timeout.total_seconds())
    except aiacc.Error as error:
        raise failure(error) from None
    made = with_short_ways(AiaccProcessGroup)(group, rank, size, members, options.store, timeout, options.global_ranks_in_group)
    if not options.global_ranks_in_group:
        _forget_with(made)
    return made


def _key(name: str) -> int:
    return zlib.crc32(name.encode())


def register() -> None:
    """Makes the back end known to torch.distributed. Does nothing the second time."""
    backends: Any = dist.Backend
    if hasattr(backends, "AIACC"):  # by the entry point
        return let_in()
    try:
        backends.register_backend("aiacc", create, extended_api=True, devices=["cpu"])
    except TypeError:  # torch 1
        backends.register_backend("aiacc", create, extended_api=True)
    let_in()
