"""A forward pass that begins while gradients of the step before are still being reduced: each module waits for its own parameters.

A hook of torch's that runs before any module is called (torch.nn.modules.module.register_module_forward_pre_hook) does that, so that models
are copied and saved without anything of it. What reads the parameters of the whole model otherwise waits for all: the model gets a class of
its own with the methods for that, as torch's fully_shard and parametrize give it one.
"""
from __future__ import annotations

import contextlib
import copy
import copyreg
import functools
import weakref
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple, cast

import torch

from aiacc._horovod.exceptions import HorovodInternalError
from aiacc.torch._compile import never_compiled
from aiacc.torch._updates import Updates


class _Use:
    """What a module has to do with an optimizer."""

    def __init__(self) -> None:
        self.call: Optional[int] = None  # modules are numbered in the order of their first calls
        self.parameters: List[torch.Tensor] = []  # for which each of its calls waits


class ForwardOverlap:
    """Of one model and one optimizer."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = weakref.ref(model)
        self._uses: Any = weakref.WeakKeyDictionary((module, _Use()) for module in model.modules())
        self._calls = 0
        self._updates: Optional[Updates] = None
        self._late: Set[torch.Tensor] = set()  # what no call had waited for when backward began
        _watch(model)
        _overlaps.add(self)
        _run_before_calls()

    def before(self, module: torch.nn.Module) -> None:
        """The module is called. What is no training may use parameters of modules in it without calling them, as TransformerEncoderLayer does."""
        use = self._uses.get(module)
        if use is None:
            return
        self._late.clear()
        if use.call is None:
            use.call, self._calls = self._calls, self._calls + 1
        if self._updates is not None:
            trains = module.training and torch.is_grad_enabled()
            self._update(use.parameters if trains else list(torch.nn.Module.parameters(module)))

    def used_updated(self, parameter: torch.Tensor) -> bool:
        """Whether the gradient that backward has just made is that of the parameter's updated value. Backward waits for all other updates."""
        if self._updates is not None:
            self._late = set(self._updates.left())
            self.finish()
        return parameter not in self._late

    def calls(self, parameters: Iterable[torch.Tensor]) -> Dict[torch.Tensor, int]:
        """The number of the first call of a module that waits for each of these, or -1 if none does that has been called so far. A module waits for
        parameters of its own, and of those within it that have not been called: it may use them itself, as MultiheadAttention does."""
        first: Dict[torch.Tensor, int] = {one: -1 for one in parameters}
        model = self._model()
        left: List[Tuple[torch.nn.Module, Optional[torch.nn.Module]]] = [] if model is None else [(model, None)]
        while left:
            module, caller = left.pop()
            use = self._uses.get(module)
            if use is not None and use.call is not None:
                caller, use.parameters = module, []
            left += [(child, caller) for child in module._modules.values() if child is not None]
            if caller is None:
                continue
            its = self._uses[caller]
            for one in module._parameters.values():
                if one is not None and one in first:
                    its.parameters.append(one)
                    first[one] = its.call if first[one] < 0 else min(first[one], its.call)
        return first

    def begin(self, updates: Updates, at_once: List[torch.Tensor]) -> None:
        """A step ends with updates to come, all but these."""
        self._updates = updates
        self._late.clear()
        _outstanding.add(self)
        self._update(at_once)

    def finish(self) -> None:
        while self._updates is not None:
            self._update(self._updates.left()[:1])

    def drop(self) -> None:
        """No update of the step is made any more."""
        self._updates = None
        _outstanding.discard(self)

    def _update(self, parameters: List[torch.Tensor]) -> None:
        updates = self._updates
        if updates is None:
            return
        _refuse_transforms()
        try:
            updates.of(parameters)
        except Exception:  # nothing can be waited for any more
            self.drop()
            raise
        if not updates.left():
            self.drop()

    def zero_grad(self, zero: Any) -> None:
        """What is outstanding has no gradient: this need not wait."""
        aside, self._updates = self._updates, None
        try:
            zero()
        finally:
            self._updates = aside


_overlaps: "weakref.WeakSet[ForwardOverlap]" = weakref.WeakSet()
_outstanding: Set[ForwardOverlap] = set()  # with updates to come, which nobody may hold otherwise
_hook: Any = None


def _run_before_calls() -> None:
    global _hook
    if _hook is None:
        _hook = torch.nn.modules.module.register_module_forward_pre_hook(_before)


@never_compiled
def _before(module: torch.nn.Module, _arguments: Any) -> None:
    global _hook
    overlaps = list(_overlaps)
    for one in overlaps:
        one.before(module)
    if not overlaps:
        _hook.remove()
        _hook = None


def _refuse_transforms() -> None:
    """An update is nothing that belongs to what is traced or differentiated."""
    transforms = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)() is not None
    if transforms or torch._C._get_tracing_state() is not None:
        raise RuntimeError("a model with overlap_forward is called by torch.func or torch.jit.trace while updates of its parameters are still to come: "
                           "call wait_for_updates() of its optimizer before")


def _of(model: torch.nn.Module) -> List[ForwardOverlap]:
    return [one for one in list(_overlaps) if one._model() is model]


def _finish(model: torch.nn.Module) -> None:
    for one in _of(model):
        one.finish()


def _waiting(name: str) -> Any:
    """The method of the model's own class, once all updates are made."""
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        _finish(self)
        return getattr(super(_Watched, self), name)(*arguments, **keywords)
    method.__name__ = name
    return method


class _Watched:
    """Methods in front of a model's own: they wait for updates to come before they read or change its parameters."""
    named_parameters, _save_to_state_dict, _apply = map(_waiting, ("named_parameters", "_save_to_state_dict", "_apply"))

    def __init_subclass__(cls) -> None:
        """What the model's own class does here, it does for classes of its users."""

    def _load_from_state_dict(self, *arguments: Any, **keywords: Any) -> Any:
        """After an error, a state of before it."""
        with contextlib.suppress(HorovodInternalError):
            _finish(self)  # type: ignore[arg-type]
        return super()._load_from_state_dict(*arguments, **keywords)  # type: ignore[misc]

    def zero_grad(self, *arguments: Any, **keywords: Any) -> None:
        zero = functools.partial(super().zero_grad, *arguments, **keywords)  # type: ignore[misc]
        for one in _of(self):  # type: ignore[arg-type]
            zero = functools.partial(one.zero_grad, zero)
        zero()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A file has the model's own class."""
        _finish(self)  # type: ignore[arg-type]
        made, arguments, *rest = cast(Tuple[Any, ...], super().__reduce_ex__(protocol))
        base = _own_class(self)
        if made is copyreg.__newobj__ and arguments == (type(self),):  # type: ignore[attr-defined]
            return (copyreg._reconstructor, (base, object, None), *rest)  # type: ignore[attr-defined]
        return (made, tuple(base if one is type(self) else one for one in arguments), *rest)

    def __deepcopy__(self, memo: Any) -> Any:
        """As the model's own class copies it."""
        _finish(self)  # type: ignore[arg-type]
        watched, own = type(self), _own_class(self)
        if own is watched:
            return copy._reconstruct(self, memo, *self.__reduce_ex__(4))  # type: ignore[attr-defined]
        self.__class__ = own
        try:
            return copy.deepcopy(self, memo)
        finally:
            self.__class__ = watched


def _own_class(model: Any) -> Any:
    """Without _Watched; if somebody else has put a class in front of that, all of it."""
    return type(model).__dict__.get("_watched_class", type(model))


def _watch(model: torch.nn.Module) -> None:
    base: Any = type(model)
    if not issubclass(base, _Watched):
        named = {name: getattr(base, name) for name in ("__qualname__", "__module__", "__doc__")}
        model.__class__ = type(base)(base.__name__, (_Watched, base), {**named, "_watched_class": base})
