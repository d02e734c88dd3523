"""What keeps a pycaffe solver in step with those of the other ranks.

pycaffe cannot move a parameter's memory: gradients are copied into the engine's slots, which the ranks of a host share, and back.
"""
from __future__ import annotations

import warnings
from typing import Any, Dict, List

import numpy as np

from aiacc.buffers import Op, buffer
from aiacc.errors import Mismatch, NotFinite
from aiacc.gradients import Engine
from aiacc.groups import WORLD

_OUTSIDE = -1


class Parameter:
    def __init__(self, blob: Any) -> None:
        self.blob = blob
        self.name, self.layer = "", 0  # the layer whose backward is the last one that adds to the gradient
        self.index = 0


def _parameters(net: Any) -> List[Parameter]:
    """In the order in which backward finishes them. Layers may share the memory of one: backward of the lowest ends its gradient."""
    found: Dict[int, Parameter] = {}
    names = list(net._layer_names)
    for layer in reversed(range(len(names))):
        for k, blob in enumerate(net.layers[layer].blobs):
            one = found.setdefault(blob.diff.ctypes.data, Parameter(blob))
            one.name, one.layer = f"parameter {k} of layer '{names[layer]}'", layer
    return sorted(found.values(), key=lambda one: -one.layer)


def _broadcast(text: str, root: int) -> str:
    data = text.encode()
    length = np.array([len(data)], dtype=np.int64)
    WORLD.broadcast(length, root)
    moved = bytearray(data) if WORLD.rank == root else bytearray(int(length[0]))
    if moved:
        WORLD.broadcast(moved, root)
    return moved.decode()


def _require_equal_lines(lines: List[str]) -> None:
    """The same exception on all ranks if one of them has other lines than rank 0."""
    theirs = _broadcast("\n".join(lines), 0).splitlines()
    rank, difference = WORLD.rank, ""
    if theirs != lines:
        at = next((i for i, (one, other) in enumerate(zip(theirs, lines)) if one != other), min(len(theirs), len(lines)))
        said = [texts[at] if at < len(texts) else "no more parameters" for texts in (theirs, lines)]
        difference = f"ranks 0 and {rank} have different models: rank 0 has {said[0]}, rank {rank} has {said[1]}"
    first = np.array([rank if difference else WORLD.size], dtype=np.int32)
    WORLD.allreduce(first, op=Op.MIN)
    if first[0] < WORLD.size:
        raise Mismatch(_broadcast(difference, int(first[0])))


class Sync:
    """Made by aiacc.caffe.synchronize; the solver keeps it."""

    def __init__(self, solver: Any, iter_size: int) -> None:
        if iter_size < 0:
            raise ValueError(f"iter_size is {iter_size}: it is that of the solver file, or 0")
        self._overlaps = bool(iter_size) and hasattr(solver.net, "after_backward")  # Caffe 1.0 has callbacks of the net
        self._iter_size = iter_size
        self._parameters = _parameters(solver.net)
        self._pass, self._submitted = _OUTSIDE, 0
        _require_equal_lines([f"{one.name} of shape {' '.join(map(str, one.blob.data.shape))}" for one in self._parameters])
        for one in self._parameters:
            WORLD.broadcast(one.blob.data, 0)
        self.engine = Engine(WORLD, "caffe")
        for one in self._parameters:
            gradient = buffer(one.blob.diff)
            one.index = self.engine.add(one.name, gradient.count, gradient.dtype, Op.AVG)
        solver.add_callback(self._on_start, self._on_gradients_ready)
        if self._overlaps:
            solver.net.after_backward(self._after_backward)

    def _on_start(self) -> None:
        self._pass, self._submitted = 0, 0

    def _after_backward(self, layer: int) -> None:
        if self._pass == _OUTSIDE:
            return
        if self._pass + 1 == self._iter_size:
            self._submit_from(layer)
        if layer == 0:
            self._pass += 1

    def _on_gradients_ready(self) -> None:
        passes, self._pass = self._pass, _OUTSIDE
        if self._overlaps and passes != self._iter_size:
            raise ValueError(f"synchronize was told an iter_size of {self._iter_size}, and the solver's is {passes}")
        self._submit_from(0)
        try:
            self.engine.wait()
        except NotFinite as error:
            warnings.warn(f"{error}. All ranks make this step with gradients of 0.", RuntimeWarning, stacklevel=2)
            for one in self._parameters:
                one.blob.diff[...] = 0

    def _submit_from(self, layer: int) -> None:
        """All that is not submitted yet and is complete after backward of this layer."""
        while self._submitted < len(self._parameters) and self._parameters[self._submitted].layer >= layer:
            one = self._parameters[self._submitted]
            gradient = buffer(one.blob.diff)
            self.engine.submit(one.index, gradient, gradient, kept=one.blob, wants_request=False)
            self._submitted += 1
