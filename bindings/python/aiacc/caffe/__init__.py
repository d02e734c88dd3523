"""Caffe, by pycaffe: the ranks of a job train one model, each with its part of every batch.

    import aiacc.caffe, caffe
    aiacc.caffe.init()
    solver = caffe.SGDSolver("solver.prototxt")
    aiacc.caffe.synchronize(solver)
    solver.step(1000)

Nothing is compiled. C++ programs have aiacc/aiacc_caffe.hpp.
"""
from __future__ import annotations

from typing import Any

try:
    import caffe as _caffe
except ImportError as _error:
    raise ImportError(f"aiacc.caffe needs pycaffe, Caffe's own Python package: {_error}; PYTHONPATH may name the folder that has it") from _error

import aiacc as _aiacc
from aiacc.caffe.sync import Sync

__all__ = ["Sync", "init", "synchronize"]


def init(shard: bool = True) -> None:
    """Makes this process a rank, and tells Caffe so; before the solver is made. Collective.

    With `shard`, the data layers of Caffe 1.0 that know ranks (Data, HDF5Data) take each n-th record on rank r of n, and only rank 0
    tests and takes snapshots. Without it, and with an older Caffe, each rank's source has records of its own, and Caffe on each rank
    takes itself for the only one: the solver files of other ranks than 0 should name no snapshots then.
    """
    if not _aiacc.initialized():
        _aiacc.init()
    if shard and hasattr(_caffe, "set_solver_rank"):
        _caffe.set_solver_count(_aiacc.size())
        _caffe.set_solver_rank(_aiacc.rank())
        _caffe.set_multiprocess(True)


def synchronize(solver: Any, iter_size: int = 0) -> Sync:
    """Keeps the models of all ranks equal while the solver steps: each has rank 0's parameters now, and in each step the mean of all
    gradients. Called by all ranks, after the solver has read weights or a snapshot on all of them.

    Gradients are reduced once in a step, after its last backward pass. `iter_size` is that of the solver file, which pycaffe does not
    tell; with it, and with Caffe 1.0, a layer's gradients are reduced while the last backward pass goes on with the layers below.
    """
    return Sync(solver, iter_size)
