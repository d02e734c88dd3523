"""init, shutdown, and who is who."""
from __future__ import annotations

import atexit
import os
import struct
from typing import Any, NamedTuple, Optional

import aiacc
from aiacc.runtime import leaves_in_order
from aiacc.torch import process_sets as _sets
from aiacc.torch.process_sets import global_process_set


class _Place(NamedTuple):
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    homogeneous: bool


# An engine that one rank frees is over for ranks that still wait for their results. How long shutdown waits for the others.
_LEAVING_S = 10.0
_place: Optional[_Place] = None
_process = 0


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Makes this process a rank, unless it is one already. `process_sets`: ranks of further sets, in lists."""
    global _place, _process
    if _place is not None:
        return
    if comm is not None and not isinstance(comm, (list, tuple)):
        raise ValueError("comm is an MPI communicator, and aiacc is built without MPI: leave it out")
    if not aiacc.initialized():
        aiacc.init()
    if comm and list(comm) != list(range(aiacc.size())):
        raise ValueError(f"comm is {list(comm)}: this version of aiacc takes all {aiacc.size()} ranks in their order; for some of them use process_sets")
    own = struct.pack("<2i", aiacc.host_index(), aiacc.local_rank())
    gathered = bytearray(len(own) * aiacc.size())
    world = aiacc.WORLD.create(range(aiacc.size()), name="aiacc.torch init")
    try:
        world.allgather(own, gathered)
    finally:
        world.free()
    places = list(struct.iter_unpack("<2i", gathered))
    across = sorted(host for host, local in places if local == aiacc.local_rank())
    sizes = {sum(1 for other, _ in places if other == host) for host, _ in places}
    _place = _Place(aiacc.rank(), aiacc.size(), aiacc.local_rank(), aiacc.local_size(), across.index(aiacc.host_index()), len(across), len(sizes) == 1)
    _process = os.getpid()
    atexit.register(_at_exit)
    _sets._setup(aiacc.rank(), aiacc.size(), process_sets)




def shutdown() -> None:
    """Ends the operations of this module, when all ranks have called it or after 10 s. The process stays a rank until Python exits, so that init may follow."""
    global _place
    if _place is None or _process != os.getpid():
        return
    if _place.size > 1:
        try:
            global_process_set._channel("shutdown").group.barrier(timeout=_LEAVING_S)
        except RuntimeError:
            pass  # a rank is lost, or goes on without this one
    _place = None
    atexit.unregister(_at_exit)
    from aiacc.torch import mpi_ops
    mpi_ops._forget_handles()
    _sets._teardown("it was shut down")


def _at_exit() -> None:
    if leaves_in_order():
        shutdown()


def is_initialized() -> bool:
    return _place is not None


def _known() -> _Place:
    if _place is None:
        raise ValueError("aiacc.torch has not been initialized: call init() first")
    return _place


def rank() -> int:
    return _known().rank


def size() -> int:
    return _known().size


def local_rank() -> int:
    return _known().local_rank


def local_size() -> int:
    return _known().local_size


def cross_rank() -> int:
    """Of this host among the hosts that have a process of this local rank."""
    return _known().cross_rank


def cross_size() -> int:
    """How many hosts have a process of this local rank."""
    return _known().cross_size


def is_homogeneous() -> bool:
    """Whether all hosts have equally many ranks."""
    return _known().homogeneous


def mpi_threads_supported() -> bool:
    _known()
    raise ValueError("mpi_threads_supported: aiacc uses no MPI; any of its functions may be called by any thread")


def _absent() -> bool:
    return False


mpi_enabled = mpi_built = gloo_enabled = gloo_built = ddl_built = ccl_built = cuda_built = rocm_built = _absent


def nccl_built() -> int:
    """0: no NCCL."""
    return 0


def aiacc_built() -> bool:
    return True


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    raise NotImplementedError("start_timeline: this version of aiacc writes no timeline")


def stop_timeline() -> None:
    raise NotImplementedError("stop_timeline: this version of aiacc writes no timeline")


__all__ = ["aiacc_built", "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "global_process_set", "gloo_built", "gloo_enabled",
           "init", "is_homogeneous", "is_initialized", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported",
           "nccl_built", "rank", "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline"]
