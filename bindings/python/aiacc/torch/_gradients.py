"""Gradients of one optimizer, reduced by the gradient engine while backward goes on.

The engine has a slot for each parameter, in memory that the ranks of a host share. A parameter's `grad` is a view of its slot,
so gradients are reduced where backward wrote them. Where no rank shares its host with another one, a long gradient that is not in
its slot stays where it is. Ranks submit them in any order; the engine finds out which are ready on all.
"""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union

import torch

from aiacc._horovod.exceptions import HorovodInternalError
from aiacc.buffers import Buffer, DType
from aiacc.errors import NotFinite
from aiacc.gradients import Engine, Wire
from aiacc.groups import Group
from aiacc.torch import tensors
from aiacc.torch._dgc import DGC, Sparsified
from aiacc.torch._memory import at_address
from aiacc.torch._operations import OPS
from aiacc.torch._sparse_gradients import Table


def dense_strides(tensor: torch.Tensor) -> Tuple[int, ...]:
    """The tensor's own strides if its elements lie without gaps in some order of dimensions, else those of a contiguous one."""
    order = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size != 1)
    expected = 1
    for stride, size in order:
        if stride != expected:
            return torch.empty(tensor.shape, device="meta").stride()
        expected *= size
    return tensor.stride()


# How many hold a storage, where torch tells (2.13 does, 1.13 does not), and what it says of one that a single tensor has.
_holders = getattr(torch._C, "_storage_Use_Count", None)


def _holders_of(tensor: torch.Tensor) -> int:
    return _holders(tensor.untyped_storage()._cdata)  # type: ignore[misc]


_ALONE = 0 if _holders is None else _holders_of(torch.empty(1, device="cpu"))


class Slot:
    """Where the gradient of one parameter travels: `view` of memory of the engine. It is nobody else's: where a model moves to another
    device or type, torch changes the memory of its gradients, and a parameter has another view of the same memory."""

    def __init__(self, parameter: torch.Tensor, index: int, flat: torch.Tensor, optional: bool) -> None:
        self.parameter, self.index = parameter, index
        self.view = torch.as_strided(flat, parameter.shape, dense_strides(parameter))
        self.sparse_dims = 0  # of the gradients that backward makes, which travel dense; 0: they are dense
        self.submitted = False
        self.optional = optional  # the engine takes a gradient that is elsewhere
        self.stays = False  # the result of what is submitted is in the gradient that backward made
        self.held: List[torch.Tensor] = []  # the memory of such gradients, until the engine has ended with them

    @property
    def in_place(self) -> bool:
        """Otherwise it is converted into the view and out of it, or copied from its device and back."""
        return self.view.dtype == self.parameter.dtype and self.parameter.is_cpu  # type: ignore[attr-defined]  # missing in annotations of torch 1

    def has(self, gradient: torch.Tensor) -> bool:
        """Whether these are the view's elements."""
        return gradient.layout == torch.strided and gradient.data_ptr() == self.view.data_ptr() and gradient.dtype == self.view.dtype and \
            gradient.stride() == self.view.stride()

    def may_stay(self, gradient: torch.Tensor) -> bool:
        """Whether the gradient has the slot's elements in the slot's order, nobody's history hangs on it, and nobody else has its memory:
        where a parameter is used through a view, another branch of backward may still read it, and it may be another one's gradient, too."""
        if not self.optional or not self.in_place or type(gradient) is not torch.Tensor or gradient.layout != torch.strided or gradient.dtype != self.view.dtype:
            return False
        if _holders is None or _holders_of(gradient) != _ALONE or gradient.requires_grad or gradient.is_neg() or gradient.is_conj():
            return False
        return all(its == ours for its, ours, size in zip(gradient.stride(), self.view.stride(), gradient.shape) if size != 1)

    def take(self, gradient: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
        """Puts the gradient in its place; None counts as zeros. Returns what holds its memory if it is to stay there."""
        if gradient is None:
            self.view.zero_()
        elif self.has(gradient):
            self.sparse_dims = 0
            return None
        elif self.may_stay(gradient):
            self.sparse_dims = 0
            return gradient.detach()
        else:
            self.sparse_dims = self._sparse_dims_of(gradient)
            dense = gradient.to_dense() if gradient.layout != torch.strided else gradient
            self.view.copy_(dense.detach() if dense.requires_grad else dense)  # with less than torch.no_grad() takes
        if self.sparse_dims:
            return None
        if self.in_place:
            self.parameter.grad = self.view.detach()
        elif gradient is None:
            self.parameter.grad = torch.zeros_like(self.parameter)
        return None

    def _sparse_dims_of(self, gradient: torch.Tensor) -> int:
        if gradient.layout == torch.strided:
            return 0
        # zero_grad of torch 1 leaves a sparse gradient without elements, with other dimensions than backward makes.
        return self.sparse_dims if self.sparse_dims and gradient._nnz() == 0 else gradient.sparse_dim()

    def prepare(self) -> Optional[torch.Tensor]:
        """The parameter's gradient is complete on this rank. What is to be sent."""
        return self.take(self.parameter.grad)

    def send(self, engine: Engine, elsewhere: Optional[torch.Tensor]) -> None:
        place = None
        if elsewhere is not None:
            self.held.append(elsewhere)
            place = Buffer(elsewhere.data_ptr(), elsewhere.numel(), tensors.type_of(elsewhere.dtype))
        engine.submit(self.index, place, place, wants_request=False)
        self.stays = place is not None
        self.submitted = True

    def give(self, engine: Engine) -> None:
        """The result is the parameter's gradient, and sparse if that was: optimizers of sparse gradients take no other."""
        self.submitted = False
        self.held.clear()
        if self.stays:
            self.stays = False
        elif self.sparse_dims:
            self.parameter.grad = self.view.to(self.parameter.device, self.parameter.dtype).to_sparse(self.sparse_dims)
        elif self.parameter.grad is not None and not self.has(self.parameter.grad):
            with torch.no_grad():
                self.parameter.grad.copy_(self.view)

    def leave(self) -> None:
        """The engine's memory goes: the gradient moves out of it."""
        if self.parameter.grad is not None and self.has(self.parameter.grad):
            self.parameter.grad = self.view.clone()


class Reducer:
    """Reduces the gradients of some parameters over a group."""

    def __init__(self, group: Group, name: str, op: int, prescale: float, postscale: float, fusion_bytes: int = 0) -> None:
        self.engine = Engine(group, name, fusion_bytes)
        self.spans_hosts = group.local_size < group.size
        self.op, self.scales = op, (prescale, postscale)
        self.slots: Dict[torch.Tensor, Union[Slot, Table, Sparsified]] = {}
        self.steps = 0

    def add(self, name: str, parameter: torch.Tensor, dtype: torch.dtype, wire: Wire, priority: int = 0) -> None:
        """A parameter, the type of its slot, and in what its elements travel. Best in the order in which backward finishes them."""
        index = self.engine.add(name, parameter.numel(), DType(tensors.type_of(dtype)), OPS[self.op], *self.scales, wire, priority)
        self.slots[parameter] = Slot(parameter, index, at_address(self.engine.memory(index), parameter.numel(), dtype),
                                     self.engine.in_place(index))

    def add_table(self, name: str, parameter: torch.Tensor, sparse_dims: int, priority: int = 0) -> None:
        """One whose gradients travel as rows."""
        self.slots[parameter] = Table(self.engine, name, parameter, sparse_dims, OPS[self.op], self.scales, priority)

    def add_sparsified(self, name: str, parameter: torch.Tensor, how: DGC, optimizer: Any) -> None:
        """One of whose gradients the largest elements travel."""
        self.slots[parameter] = Sparsified(self.engine, name, parameter, OPS[self.op], self.scales, how, optimizer)

    def sparsified(self) -> List[Sparsified]:
        return [one for one in self.slots.values() if isinstance(one, Sparsified)]

    def close(self) -> None:
        """The engine's memory goes."""
        for slot in self.slots.values():
            slot.leave()
        try:
            self.engine.free()
        except RuntimeError:
            pass  # the world is over already
        self.slots = {}  # with what the engine had of their gradients

    def submit(self, parameter: torch.Tensor) -> None:
        """The parameter's gradient is complete on this rank."""
        slot: Any = self.slots[parameter]
        prepared = slot.prepare()  # an error of torch's is its own
        try:
            slot.send(self.engine, prepared)
        except RuntimeError as error:  # the engine may still have what was submitted before
            raise HorovodInternalError(f"reducing gradients: {error}") from error

    def _submit_rest(self) -> None:
        self.steps += 1
        for one in [one for one, slot in self.slots.items() if not slot.submitted]:
            self.submit(one)

    def begin_wait(self) -> None:
        """Submits what is missing as zeros: nothing else comes in this step."""
        self._submit_rest()
        self.engine.flush()

    def is_reduced(self, parameter: torch.Tensor, within_ms: int = 0) -> bool:
        """Whether the parameter's gradient is reduced, waiting for at most this time. With AIACC_NAN_CHECK only wait() tells what is not finite."""
        try:
            return self.engine.wait_for(self.slots[parameter].index, within_ms)
        except RuntimeError as error:
            raise HorovodInternalError(f"reducing gradients: {error}") from error

    def give(self, parameter: torch.Tensor) -> None:
        """The result becomes the parameter's gradient."""
        self.slots[parameter].give(self.engine)

    def end_wait(self) -> None:
        """All results are there."""
        try:
            self.engine.wait()
        except RuntimeError as error:
            raise HorovodInternalError(f"reducing gradients: {error}") from error

    def wait(self) -> Optional[NotFinite]:
        """Submits what is missing as zeros, and waits for all results. Returns what is not finite, on all ranks alike."""
        not_finite = None
        self._submit_rest()
        try:
            self.engine.wait()
        except NotFinite as error:
            not_finite = error
            for sparsified in self.sparsified():
                sparsified.roll_back()
        except RuntimeError as error:
            raise HorovodInternalError(f"reducing gradients: {error}") from error
        for slot in self.slots.values():
            slot.give(self.engine)
        return not_finite
