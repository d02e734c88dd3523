"""Gradients of a gluon Trainer, reduced by the gradient engine while backward goes on.

The engine has a slot for each parameter, in memory that the ranks of a host share. A parameter's gradient becomes an NDArray over its
slot, so gradients are reduced where backward writes them. The trainer waits for one after another, from the last parameter, which
backward finishes first, and submits it; nothing in MXNet uses a gradient from then until the reducer has waited for all results.
"""
from __future__ import annotations

from typing import Any, Iterable, List, Optional, Tuple, Union

from mxnet import autograd
from mxnet.gluon.parameter import Parameter
from mxnet.ndarray import NDArray

from aiacc._horovod.exceptions import HorovodInternalError
from aiacc.buffers import Op
from aiacc.errors import NotFinite
from aiacc.gradients import Engine, Wire
from aiacc.groups import Group
from aiacc.mxnet import tensors
from aiacc.mxnet._sparse_gradients import Table, is_sparse


def gradient_of(parameter: Parameter) -> NDArray:
    found = parameter.list_grad()
    if len(found) > 1:
        raise ValueError(f"parameter '{parameter.name}' is on {len(found)} contexts: a rank has one")
    return found[0] if is_sparse(parameter) else tensors.check(found[0], f"the gradient of '{parameter.name}'")


class Slot:
    def __init__(self, parameter: Parameter, index: int, memory: int) -> None:
        self.parameter, self.index = parameter, index
        self.view: Optional[NDArray] = None
        given = gradient_of(parameter)
        if memory and tensors.type_name(given) != "bfloat16" and type(given) is NDArray:  # others are copied
            self.view = tensors.at_address(memory, given.shape, given.dtype)
            given.copyto(self.view)
            self._use(self.view)

    def _use(self, gradient: NDArray) -> None:
        data = self.parameter.list_data()[0]
        fresh = data._fresh_grad  # whether backward has written it since the last step
        self.parameter._grad = [gradient]
        autograd.mark_variables([data], [gradient], self.parameter.grad_req)
        data._fresh_grad = fresh

    def submit(self, engine: Engine) -> None:
        gradient = tensors.settle(gradient_of(self.parameter))
        if gradient is self.view and tensors.address(gradient) == engine.memory(self.index):
            engine.submit(self.index, wants_request=False)
        else:
            buffer = tensors.buffer_of(gradient)
            engine.submit(self.index, buffer, buffer, wants_request=False)

    def give(self, engine: Engine) -> None:
        """The result is in the gradient."""

    def leave(self) -> None:
        """The gradient moves out of the engine's memory."""
        if self.view is not None and self.parameter._grad and self.parameter._grad[0] is self.view:
            self._use(tensors.settle(self.view.copy()))
        self.view = None


class Reducer:
    def __init__(self, group: Group, name: str, prescale: float) -> None:
        self.engine = Engine(group, name)
        self._prescale = prescale
        self.slots: List[Union[Slot, Table]] = []

    def add(self, named: Iterable[Tuple[str, Parameter, Wire]]) -> None:
        """In the order in which backward finishes them. Gradients are summed."""
        for name, parameter, wire in named:
            if is_sparse(parameter):
                self.slots.append(Table(parameter, self.engine, name, self._prescale))
                continue
            given = gradient_of(parameter)
            kind = tensors.element_type(given)
            index = self.engine.add(name, tensors.count(given), kind, Op.SUM, self._prescale, wire=wire if tensors.type_name(given) == "float32"
                                    else Wire.DEFAULT)
            self.slots.append(Slot(parameter, index, self.engine.memory(index)))

    def reduce(self) -> Optional[NotFinite]:
        """Returns what is not finite, on all ranks alike."""
        not_finite = None
        try:
            for slot in self.slots:
                slot.submit(self.engine)
            self.engine.wait()
        except NotFinite as error:
            not_finite = error
        except ValueError:
            raise
        except RuntimeError as error:
            raise HorovodInternalError(f"reducing gradients: {error}") from error
        for slot in self.slots:
            slot.give(self.engine)
        return not_finite

    def close(self) -> Any:
        for slot in self.slots:
            slot.leave()
        self.slots = []
        try:
            self.engine.free()
        except RuntimeError:
            pass  # the world is over already
