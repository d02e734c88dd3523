"""aiacc: collectives for distributed deep-learning training.

    import aiacc, array
    aiacc.init()
    values = array.array("d", [aiacc.rank()] * 4)
    aiacc.WORLD.allreduce(values)          # in place, over all ranks

started by `aiaccrun -np 4 python train.py`, or by `python -m aiacc.run -np 4 python train.py`. Importing the package starts
nothing and needs no framework; `aiacc.torch` is the binding of PyTorch, `aiacc.mxnet` that of MXNet, `aiacc.caffe` that of
Caffe.
"""
from aiacc._version import __version__
from aiacc.buffers import Buffer, DType, Op
from aiacc.errors import (Aborted, Error, InternalError, InvalidArgument, InvalidHandle, InvalidState, Mismatch, NotFinite, OutOfMemory,
                          PeerFailed, ProtocolError, SystemFailure, Timeout, Unreachable, Unsupported)
from aiacc.groups import WORLD, Group, TrafficClass
from aiacc.kvstore import KVStore
from aiacc.mesh import Mesh
from aiacc.requests import AnySourceRequest, Request, wait_all, wait_any
from aiacc.runtime import HOSTS_ADDED, HOSTS_REMOVED, Memory, Store, finalize, hosts_updated, info, init, initialized, metrics, start_timeline, stop_timeline, version


def rank() -> int:
    """Of this process among all."""
    return WORLD.rank


def size() -> int:
    """How many ranks the job has."""
    return WORLD.size


def local_rank() -> int:
    """Of this process among those of its host."""
    return WORLD.local_rank


def local_size() -> int:
    """How many ranks this host has."""
    return WORLD.local_size


def host_index() -> int:
    """Of this host among the hosts of the job."""
    return WORLD.host_index


__all__ = [
    "Aborted", "AnySourceRequest", "Buffer", "DType", "Error", "Group", "HOSTS_ADDED", "HOSTS_REMOVED", "InternalError", "InvalidArgument", "InvalidHandle", "InvalidState", "KVStore", "Memory", "Mesh",
    "Mismatch", "NotFinite", "Op", "OutOfMemory", "PeerFailed", "ProtocolError", "Request", "Store", "SystemFailure", "Timeout", "TrafficClass", "Unreachable", "Unsupported", "WORLD",
    "__version__", "finalize", "host_index", "hosts_updated", "info", "init", "initialized", "local_rank", "local_size", "metrics",
    "rank", "size", "start_timeline", "stop_timeline", "version", "wait_all", "wait_any",
]
