"""init, shutdown, and who is who."""
from __future__ import annotations

import atexit
import logging
import os
import struct
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import aiacc
from aiacc._horovod import handles
from aiacc._horovod import process_sets as _sets
from aiacc._horovod.process_sets import global_process_set
from aiacc.groups import Group
from aiacc.runtime import at_end, go_on_without, leaves_in_order, path


_log = logging.getLogger("aiacc.elastic")


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
_before_shutdown: List[Callable[[], None]] = []  # what frameworks still have to finish
_process = 0
_left: List[int] = []  # ranks of the world that are not lost, as of the last init; empty before the first
_has_been_there = False  # this process has been in a world
_newcomers = False  # the last init was the first of some rank


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Makes this process a rank, unless it is one already. `process_sets`: ranks of further sets, in lists."""
    global _place, _process, _newcomers, _has_been_there
    if _place is not None:
        return
    if comm is not None and not isinstance(comm, (list, tuple)):
        raise ValueError("comm is an MPI communicator, and aiacc is built without MPI: leave it out")
    if not aiacc.initialized():
        aiacc.init()
    group, places = _meet()
    size = group.size
    if comm and list(comm) != list(range(size)):
        raise ValueError(f"comm is {list(comm)}: this version of aiacc takes all {size} ranks in their order; for some of them use process_sets")
    across = sorted(host for host, local, _ in places if local == group.local_rank)
    sizes = {sum(1 for other, _, _ in places if other == host) for host, _, _ in places}
    _newcomers, _has_been_there = not all(been for _, _, been in places), True
    _place = _Place(group.rank, size, group.local_rank, group.local_size, across.index(group.host_index), len(across), len(sizes) == 1)
    _process = os.getpid()
    at_end(_at_exit)
    _sets._setup(group, process_sets)


def _meet() -> Tuple[Group, List[Tuple[int, int, int]]]:
    """A group of the ranks that are not lost, and of each its host, its place there and whether it has been in a world before. Ranks learn of a loss in the call that fails by
    it, and try again without the lost one. Groups are found by their members, so ranks that know of different losses meet in the end."""
    global _left
    left = _left or list(range(aiacc.size()))
    while True:
        group = aiacc.WORLD.create(left, name="aiacc init")
        own = struct.pack("<3i", group.host_index, group.local_rank, _has_been_there)
        gathered = bytearray(len(own) * group.size)
        try:
            group.allgather(own, gathered)
        except aiacc.PeerFailed as error:
            group.free()
            if "AIACC_MAX_SIZE" in os.environ:
                _enter_next_world()
                left = list(range(aiacc.size()))
                continue
            if not _goes_on_without(error.rank, left):
                raise
            go_on_without(error.rank)
            left = [one for one in left if one != error.rank]
            continue
        except BaseException:
            group.free()
            raise
        _left = left
        return group, list(struct.iter_unpack("<3i", gathered))


def _enter_next_world() -> None:
    """Returns when all ranks of the next world have come, which aiaccrun chooses (--max-np)."""
    global _left
    try:
        aiacc.finalize()
    except RuntimeError:
        pass  # it left, and says again who is lost
    try:
        aiacc.init()
    except aiacc.Aborted as reason:  # aiaccrun goes on without this rank, whose host is not listed any more
        _log.info("%s", reason)
        raise SystemExit(0) from None
    _left = []


def meet_in_next_world() -> None:
    """init, after shutdown; where hosts may change in the next world, with the ranks that wait for it. All ranks of this one do that."""
    if _place is None and aiacc.initialized() and gets_hosts():
        _enter_next_world()
    init()


def gets_hosts() -> bool:
    """Whether the hosts of the job may change (aiaccrun --host-discovery-script)."""
    return os.environ.get("AIACC_NEW_HOSTS") == "yes"


def hosts_updated() -> int:
    """What aiaccrun has said of the next world since this one began (aiacc.hosts_updated)."""
    return aiacc.hosts_updated() if gets_hosts() and aiacc.initialized() else 0


def has_newcomers() -> bool:
    """Whether some rank was in no world before the present one. The same on all ranks."""
    return _newcomers


def _goes_on_without(rank: int, left: List[int]) -> bool:
    """Whether aiaccrun lets the others go on (--min-np)."""
    least = os.environ.get("AIACC_MIN_SIZE", "")
    return rank in left and rank != aiacc.rank() and least.isdigit() and len(left) > int(least)


def shutdown() -> None:
    """Ends the operations of this module, when all ranks have called it or after 10 s. The process stays a rank until Python exits, so that init may follow."""
    if _place is None or _process != os.getpid():
        return
    for finish in _before_shutdown:
        finish()
    if _place.size > 1:
        try:
            global_process_set._channel("shutdown").group.barrier(timeout=_LEAVING_S)
        except aiacc.Timeout:  # the others do something else, and may wait for this rank in it
            _sets._leave(f"rank {_place.rank} has shut down and takes part in no further operation")
        except RuntimeError:
            pass  # a rank is lost, or goes on without this one
    _forget("it was shut down")


def abandon(reason: str) -> None:
    """As shutdown, at once: what other ranks wait for in operations of this module fails with the reason. All of them call init next."""
    if _place is None or _process != os.getpid():
        return
    _sets._abort(reason)
    _forget(reason)


def give_up_steps() -> None:
    """After an error, before the model gets its state of the last commit: steps that optimizers have begun are not ended."""
    if _place is not None and _process == os.getpid():
        _sets.give_up_steps()


def _forget(reason: str) -> None:
    global _place
    _place = None
    atexit.unregister(_at_exit)
    handles.forget_all()
    _sets._teardown(reason)


def _at_exit() -> None:
    if leaves_in_order():
        shutdown()


def is_initialized() -> bool:
    return _place is not None


def _known() -> _Place:
    if _place is None:
        # Scripts and tests compare the beginning, which is Horovod's.
        raise ValueError("Horovod has not been initialized; use hvd.init(), of aiacc.torch, aiacc.tensorflow or aiacc.mxnet")
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
    """Begins a trace of all ranks that call it, for Perfetto or Chrome's about:tracing. Rank 0 writes `file_path`. Rounds of negotiation,
    which stand for Horovod's cycles, are in it with and without `mark_cycles`."""
    _known()
    path("file_path", file_path)
    try:
        aiacc.start_timeline(file_path)
    except aiacc.InvalidState as error:
        raise ValueError(f"start_timeline: {error}") from None


def stop_timeline() -> None:
    """Ends it: called by rank 0 on all ranks, else on this one."""
    _known()
    aiacc.stop_timeline()


__all__ = ["aiacc_built", "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "global_process_set", "gloo_built", "gloo_enabled",
           "init", "is_homogeneous", "is_initialized", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported",
           "nccl_built", "rank", "rocm_built", "shutdown", "size", "start_timeline", "stop_timeline"]
