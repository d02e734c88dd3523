"""Named asynchronous allreduces, which ranks may start in another order: on a gradient engine of the process set."""
from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Optional, Tuple

from aiacc._horovod.exceptions import HorovodInternalError
from aiacc._horovod.operations import OPS
from aiacc.errors import Error
from aiacc.gradients import Engine
from aiacc.groups import Group
from aiacc.requests import Request


class NamedAllreduces:
    def __init__(self, group: Callable[[], Group], tensors: Any) -> None:
        self._group, self._of = group, tensors
        self._lock = threading.Lock()
        self._engine: Optional[Engine] = None
        self.started = 0
        self._engines = 0  # that were made: an error ends an engine on all ranks, and the next one follows it
        self._tensors: Dict[str, Tuple[Any, int, int]] = {}  # by name: metadata, how many others it had before, number of the engine

    def engine(self) -> Engine:
        """Made with the first operation, in the same order on all ranks."""
        if self._engine is None:
            self._engine = Engine(self._group(), f"{self._of.FRAMEWORK} named allreduces {self._engines}")
            self._engines += 1
            self._tensors = {}
        return self._engine

    def start(self, name: str, given: Any, result: Any, op: int, prescale: float, postscale: float) -> PendingNamed:
        of = self._of
        source = of.packed(given)
        target = result if of.is_packed(result) else of.like(result)
        metadata = (of.describe(given), op, prescale, postscale)
        with self._lock:
            self.started += 1
            try:
                engine = self.engine()
                before = self._tensors.get(name)
                if before is None or before[0] != metadata:
                    # All ranks change a tensor with the same call of its name: it is another tensor from then on.
                    changes = 0 if before is None else before[1] + 1
                    index = engine.add(f"{name} #{changes}" if changes else name, of.count(given), of.element_type(given), OPS[op], prescale, postscale)
                    before = self._tensors[name] = (metadata, changes, index)
                request = engine.submit(before[2], of.buffer_of(source), of.buffer_of(target))
            except Error as error:
                raise self._failed(name, error) from error
        assert request is not None
        return PendingNamed(self, engine, name, request, target, result)

    def _failed(self, name: str, error: Error) -> HorovodInternalError:
        self._engine = None
        return HorovodInternalError(f"allreduce '{name}': {error}")

    def ended(self, name: str, engine: Engine, error: Error) -> HorovodInternalError:
        with self._lock:
            if self._engine is engine:
                self._engine = None
        return HorovodInternalError(f"allreduce '{name}': {error}")

    def close(self) -> None:
        if self._engine is not None:
            try:
                self._engine.free()
            except RuntimeError:
                pass  # the world is over already
            self._engine = None


class PendingNamed:
    """What a handle stands for."""

    def __init__(self, owner: NamedAllreduces, engine: Engine, name: str, request: Request, target: Any, result: Any) -> None:
        self._owner, self._engine, self._name, self._request, self._target, self._result = owner, engine, name, request, target, result
        self.key: Any = None

    def done(self) -> bool:
        try:
            if self._request.test():
                return True
            self._engine.flush()
            return self._request.test()
        except Error:
            return True  # which wait raises

    def wait(self) -> Any:
        try:
            self._request.wait()
        except Error as error:
            raise self._owner.ended(self._name, self._engine, error) from error
        if self._target is not self._result:
            self._owner._of.copy(self._result, self._target)
        return self._result
