"""DistributedOptimizer: an optimizer whose step uses the gradients of all ranks."""
from __future__ import annotations

import contextlib
import json
import warnings
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import torch

from aiacc._arguments import count, number, refused, several
from aiacc._horovod import basics
from aiacc._horovod.process_sets import ProcessSet, checked_set, global_process_set
from aiacc.gradients import Wire, checks_nan, sets_fusion_bytes
from aiacc.torch import mpi_ops, tensors
from aiacc.torch import _operations as operations
from aiacc.torch._adasum_optimizer import adasum_optimizer
from aiacc.torch._dgc import DGC, check_optimizer, updated_first
from aiacc.torch._gradients import Reducer, Slot, dense_strides
from aiacc.torch._operations import Average, Join, Sum
from aiacc.torch._overlap import ForwardOverlap
from aiacc.torch._sparse_gradients import Table, check_tables
from aiacc.torch._updates import Updates, has_hooks, update_of
from aiacc.torch._wrapping import adopt, count_step, wrapped_class
from aiacc.torch.compression import checked as checked_compression
from aiacc.torch.compression import BF16Compressor, Compression, FP16Compressor, NoneCompressor

# The engine's wire of a compression, and the type for what the engine does not convert.
_WIRES: Dict[Any, Tuple[Wire, torch.dtype]] = {FP16Compressor: (Wire.FLOAT16, torch.float16), BF16Compressor: (Wire.BFLOAT16, torch.bfloat16)}

_made = 0  # optimizers of this process: each has a channel of its own


class _LeftOut(Exception):
    """A gradient of the closure's is not finite: the rest of the step is left out, on all ranks."""


class _DistributedOptimizer(torch.optim.Optimizer):
    """Methods that are put in front of the user's class. Its own __init__ is not run: the state is the user's optimizer's."""
    _wrapped: Any = torch.optim.Optimizer

    def _set_up(self, names: Dict[torch.Tensor, str], compression: Any, backward_passes_per_step: int, op: int, gradient_predivide_factor: float,
                groups: List[List[torch.Tensor]], sparse_as_dense: bool, process_set: ProcessSet, overlap_forward: Optional[torch.nn.Module]) -> None:
        global _made
        self._parameter_names = names
        self._compression, self._op, self._sparse_as_dense, self._process_set = compression, op, sparse_as_dense, process_set
        self._scales = (1.0 / gradient_predivide_factor, gradient_predivide_factor) if op == Average else (1.0, 1.0)
        self._groups = groups
        self.backward_passes_per_step = backward_passes_per_step
        self._delays: Dict[torch.Tensor, int] = {one: backward_passes_per_step for one in names}
        self._handles: Dict[torch.Tensor, Any] = {}  # parameters whose gradients are on their way
        self._arrived: List[torch.Tensor] = []  # in the first step, before there is a plan: in the order of backward
        self._reducer: Optional[Reducer] = None
        self._compressed: Dict[torch.Tensor, int] = {}  # by a class of the user's; with the sparse dimensions of its gradients, 0: they are dense
        self._synchronized, self._should_synchronize = False, True
        self._left_out = False  # the step: a gradient is not finite
        self._evaluations = 0  # of the step's closure
        self._hooks: List[Any] = []
        self._overlap: Optional[ForwardOverlap] = None
        self._drops_gradients = overlap_forward is not None  # at the end of each step
        self._number = _made
        _made += 1
        if process_set._reduced_ranks() > 1:
            for one in names:
                self._register_hook(one)
            self._joined = _Joined(self)
            process_set._optimizers.append(self._joined)
            if overlap_forward is not None:
                self._overlap = ForwardOverlap(overlap_forward)

    # --- hooks

    def _register_hook(self, parameter: torch.Tensor) -> None:
        if hasattr(parameter, "register_post_accumulate_grad_hook"):  # torch >= 2.1
            self._hooks.append(parameter.register_post_accumulate_grad_hook(self._on_gradient))
            return
        accumulator: Any = parameter.expand_as(parameter).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
        self._hooks += [accumulator, accumulator.register_hook(lambda *_: self._on_gradient(parameter))]

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        if self._overlap is not None and not self._overlap.used_updated(parameter):
            raise RuntimeError(f"the gradient of '{self._parameter_names[parameter]}' was computed from its value of before the last step(), as the parameter "
                               "was used without a call of its module: with overlap_forward call wait_for_updates() before that")
        if self._delays[parameter] <= 0:
            raise AssertionError(
                f"the gradient of '{self._parameter_names[parameter]}' was computed more than backward_passes_per_step ({self.backward_passes_per_step}) "
                "times before step() or synchronize(): raise backward_passes_per_step to accumulate gradients over several backward passes, or, if a "
                "parameter is used by several of them in one step, to that number")
        self._delays[parameter] -= 1
        if self._delays[parameter] == 0:
            self._submit(parameter)

    def _submit(self, parameter: torch.Tensor) -> None:
        self._handles[parameter] = True
        if self._reducer is None:
            self._arrived.append(parameter)
        elif parameter in self._reducer.slots:
            self._reducer.submit(parameter)

    # --- the plan, made at the end of the first step

    def _plan(self) -> Reducer:
        """Agrees with all ranks on names, shapes, sparse parameters and the order of slots."""
        parameters = {name: one for one, name in self._parameter_names.items()}
        order = [self._parameter_names[one] for one in self._arrived]
        order += [name for name in parameters if parameters[name] not in self._handles]
        # Without rows: as of what zero_grad of torch 1 leaves, with other dimensions than backward makes.
        sparse = {name: one.grad.sparse_dim() if one.grad._nnz() else 0 for name, one in parameters.items()
                  if one.grad is not None and one.grad.layout != torch.strided}
        described = sorted([name, str(one.dtype), list(one.shape), list(dense_strides(one))] for name, one in parameters.items())
        channel = self._process_set._channel(f"opt{self._number}")
        channel.run(operations.Agreement("DistributedOptimizer", {
            "parameters": described, "op": operations.OP_NAMES[self._op], "scales": list(self._scales),
            "compression": getattr(self._compression, "__name__", type(self._compression).__name__),
            "sparse_as_dense": self._sparse_as_dense, "overlap_forward": self._overlap is not None, "groups": [[self._parameter_names[one] for one in group] for group in self._groups]}))
        gathered = channel.run(operations.AllgatherBytes("DistributedOptimizer", tensors.canonical([order, sparse])))
        said = [json.loads(one) for one in gathered]
        sparse_dims = {name: min((of_rank[name] for _, of_rank in said if of_rank.get(name, 0) > 0), default=1) for _, names in said for name in names}
        as_rows = {} if self._sparse_as_dense else {name: dims for name, dims in sparse_dims.items() if Table.fits(parameters[name], dims)}
        planned = [parameters[name] for name in said[0][0]]
        if not isinstance(self._compression, DGC) and self._compression not in (NoneCompressor, *_WIRES):
            self._compressed = {parameters[name]: sparse_dims.get(name, 0) for name in said[0][0] if name not in as_rows}
            planned = [one for one in planned if one not in self._compressed]
        grouped = {one for group in self._groups for one in group}
        # Neighbours are fused: groups stay together.
        ordered = [one for group in map(set, self._groups) for one in planned if one in group] + [one for one in planned if one not in grouped]
        check_tables(as_rows, self._op)
        # What the next forward pass needs first comes first, and waits for less in front of it.
        first_calls = {} if self._overlap is None else self._overlap.calls(ordered)
        reducer = Reducer(channel.group, f"DistributedOptimizer {self._number}", self._op, *self._scales,
                          fusion_bytes=0 if self._overlap is None or sets_fusion_bytes() else 2 << 20)
        try:
            for one in ordered:
                name = self._parameter_names[one]
                if name in as_rows:
                    reducer.add_table(name, one, as_rows[name], -first_calls.get(one, 0))
                elif isinstance(self._compression, DGC) and name not in sparse_dims and self._compression.takes(one):
                    reducer.add_sparsified(name, one, self._compression, self)
                else:
                    reducer.add(name, one, *self._wire(one), -first_calls.get(one, 0))
        except BaseException:
            reducer.close()
            raise
        for one, slot in reducer.slots.items():
            if isinstance(slot, Slot):
                slot.sparse_dims = sparse_dims.get(self._parameter_names[one], 0)
        return reducer

    def _wire(self, parameter: torch.Tensor) -> Tuple[torch.dtype, Wire]:
        """The type of the slot, and the wire. Gradients of float32 are converted by the engine, those of other types into the slot."""
        if self._compression is NoneCompressor or isinstance(self._compression, DGC) or not parameter.dtype.is_floating_point:
            return parameter.dtype, Wire.DEFAULT
        wire, dtype = _WIRES[self._compression]
        engine_converts = parameter.dtype == torch.float32 and self._op in (Average, Sum)
        return (parameter.dtype, wire) if engine_converts else (dtype, Wire.DEFAULT)

    # --- the user's calls

    def synchronize(self) -> None:
        """Waits until the gradients are those of all ranks. A parameter without a gradient takes part with zeros."""
        self.wait_for_updates()
        if self._process_set._reduced_ranks() == 1:
            self._begin_step()
            self._arrived = []
            self._synchronized = True
            return
        if self._reducer is None:
            self._reducer = self._joined.reducer = self._plan()
            for one in self._arrived:
                if one in self._reducer.slots:
                    self._reducer.submit(one)
            self._arrived = []
        try:
            not_finite = self._reducer.wait()
            self._left_out = not_finite is not None
            if not_finite is not None:
                # An optimizer that evaluates its closure again has moved parameters before, and these are not moved back.
                what = "ends on all ranks with the parameters of this evaluation" if self._evaluations > 1 else "changes no parameter on any rank"
                warnings.warn(f"this step {what}: {not_finite}", RuntimeWarning, stacklevel=3)
            self._reduce_compressed()
        finally:
            self._begin_step()
        self._synchronized = True

    def wait_for_updates(self) -> None:
        """With overlap_forward: until all parameters have been updated by the last step."""
        if self._overlap is not None:
            self._overlap.finish()

    def _left_world(self) -> None:
        """The process set is shut down. After the next init, a step plans anew."""
        if self._overlap is not None:
            self._overlap.drop()
        self._reducer = None
        self._arrived, self._compressed = [], {}
        self._synchronized, self._left_out = False, False
        self._begin_step()

    def _begin_step(self) -> None:
        self._handles.clear()
        for one in self._delays:
            self._delays[one] = self.backward_passes_per_step

    def _reduce_compressed(self) -> None:
        """Gradients that travel as a class of the user's makes them."""
        for one, sparse_dims in self._compressed.items():
            gradient = one.grad if one.grad is not None else torch.zeros_like(one)
            travels, context = self._compression.compress(gradient.to_dense() if gradient.layout != torch.strided else gradient)
            result = mpi_ops._run_allreduce([travels], f"gradient.{self._number}.{self._parameter_names[one]}", self._op, *self._scales,
                                            self._process_set)
            reduced = self._compression.decompress(result[0], context)
            one.grad = reduced.to_sparse(sparse_dims) if sparse_dims else reduced

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """step() within it does not synchronize: it was done before, as for clipping gradients."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def set_backward_passes_per_step(self, passes: int) -> None:
        passes = count("passes", passes)
        if passes <= 0:
            raise ValueError(f"backward_passes_per_step is {passes}; it is 1 or more")
        self.backward_passes_per_step = passes
        for one in self._delays:
            self._delays[one] = passes

    def step(self, closure: Optional[Callable[[], float]] = None) -> Any:  # type: ignore[override]
        """With a closure, each of its evaluations is followed by synchronize(), so that the optimizer sees the gradients of all ranks."""
        count_step(self)
        loss = self._reduced_step(closure)
        if self._drops_gradients:
            for group in self.param_groups:
                for one in group["params"]:
                    one.grad = None
        return loss
    step.hooked = True  # type: ignore[attr-defined]  # for torch, whose function with hooks is around the step of the wrapped class

    def _reduced_step(self, closure: Optional[Callable[[], float]]) -> Any:
        self.wait_for_updates()
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn("optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(): gradients are reduced twice")
            if closure is not None:
                return self._step_with(closure)
            if self._step_in_parts():
                return None
            self.synchronize()
        self._synchronized = False
        if self._left_out:
            self._left_out = False
            return None
        sparsified = [] if self._reducer is None else self._reducer.sparsified()
        if not sparsified:
            return self._wrapped.step(self, closure)
        with updated_first(self, sparsified):
            return self._wrapped.step(self, closure)

    def _step_in_parts(self) -> bool:
        """A step that updates each parameter once its gradient is reduced, while others are on their way: where these pass a network, or with
        overlap_forward, when the next forward pass needs it. False: this step is to be made as a whole. The first one is: it tells in which
        order gradients come, and which modules use what."""
        reducer, update = self._reducer, update_of(self._wrapped)
        if reducer is None or update is None or (self._overlap is None and not reducer.spans_hosts) or self._compressed or reducer.sparsified() or \
                has_hooks(self) or checks_nan() or self._has_others(reducer):
            return False
        try:
            reducer.begin_wait()
        finally:
            self._begin_step()
        self._synchronized = False
        if self._overlap is None:
            Updates(self, reducer, update, reducer.slots).finish()
        else:
            calls = self._overlap.calls(reducer.slots)
            order = sorted(calls, key=calls.__getitem__)
            self._overlap.begin(Updates(self, reducer, update, order, hides=True), [one for one in order if calls[one] < 0])
        return True

    def _has_others(self, reducer: Reducer) -> bool:
        """Parameters that came after the first step, whose gradients are this rank's own."""
        return any(one.grad is not None and one not in reducer.slots for group in self.param_groups for one in group["params"])

    def _step_with(self, closure: Callable[[], float]) -> Any:
        if isinstance(self._compression, DGC):  # torch.optim.SGD evaluates it once, before all else
            with torch.enable_grad():
                once = closure()
            self._reduced_step(None)
            return once

        def evaluate() -> float:
            loss = closure()
            self._evaluations += 1
            self.synchronize()
            self._synchronized = False
            if self._left_out:
                self._left_out = False
                raise _LeftOut
            return loss
        try:
            return self._wrapped.step(self, evaluate)
        except _LeftOut:
            return None
        finally:
            self._evaluations = 0

    def zero_grad(self, *arguments: Any, **keywords: Any) -> None:
        if self._handles:
            raise AssertionError("zero_grad() between backward() and step() or synchronize(): gradients are on their way")
        self._wrapped.zero_grad(self, *arguments, **keywords)

    def state_dict(self, *arguments: Any, **keywords: Any) -> Any:
        self.wait_for_updates()
        return self._wrapped.state_dict(self, *arguments, **keywords)

    def load_state_dict(self, state_dict: Any) -> None:
        self.wait_for_updates()
        self._begin_step()
        self._arrived = []
        self._synchronized, self._should_synchronize = False, True
        self._wrapped.load_state_dict(self, state_dict)


class _Joined:
    """What a rank does for an optimizer of the others when it has joined; and how the engine ends."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = weakref.ref(optimizer)
        self.purpose = f"opt{optimizer._number}"  # of the channel on which ranks agree in the first step
        self.reducer: Optional[Reducer] = None

    def join(self) -> None:
        optimizer = self._optimizer()
        try:
            if optimizer is not None:
                optimizer.wait_for_updates()
        finally:
            self._join(optimizer)

    def _join(self, optimizer: Any) -> None:
        if self.reducer is not None:
            self.reducer.engine.join()
        elif optimizer is not None:  # before its first step, for which ranks must agree: those that have one raise
            optimizer._process_set._channel(self.purpose).run(Join(None))

    def give_up(self) -> None:
        optimizer = self._optimizer()
        if optimizer is not None and optimizer._overlap is not None:
            optimizer._overlap.drop()

    def steps(self) -> int:
        return 0 if self.reducer is None else self.reducer.steps

    def close(self) -> None:
        optimizer = self._optimizer()
        if optimizer is not None:
            try:
                optimizer.wait_for_updates()
            except Exception as error:
                warnings.warn(f"some parameters have their values of before the last step: {error}", RuntimeWarning)
        if self.reducer is not None:
            self.reducer.close()
            self.reducer = None
        if optimizer is not None:
            optimizer._left_world()
            optimizer._process_set._optimizers.append(self)


def _named(optimizer: torch.optim.Optimizer, named_parameters: Optional[Iterable[Any]]) -> Dict[torch.Tensor, str]:
    """Names of the parameters that have gradients, in the optimizer's order."""
    all_of = [one for group in optimizer.param_groups for one in group["params"]]
    if named_parameters is None:
        pairs = [(f"allreduce.noname.{i}.{j}", one) for i, group in enumerate(optimizer.param_groups) for j, one in enumerate(group["params"])]
    else:
        pairs = several("named_parameters", named_parameters, "a sequence of (name, parameter), as model.named_parameters() gives")
        if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
            raise ValueError("named_parameters is a sequence of (name, parameter): use model.named_parameters()")
        if len(pairs) == 0:
            pairs = [(f"allreduce.noname.{i}.{j}", one) for i, group in enumerate(optimizer.param_groups) for j, one in enumerate(group["params"])]
    seen = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"named_parameters has '{name}' twice: names are different")
        seen.add(name)
    names = {one: name for name, one in pairs}
    missing = [i for i, one in enumerate(all_of) if one not in names]
    if missing:
        raise ValueError(f"named_parameters lacks {len(missing)} of the optimizer's {len(all_of)} parameters (the first one is its number {missing[0]}): "
                         "name all of them, or none")
    return {one: names[one] for one in all_of if one.requires_grad}


def _grouped(groups: Union[None, int, Sequence[Any]], num_groups: int, names: Dict[torch.Tensor, str]) -> List[List[torch.Tensor]]:
    if num_groups is not None and count("num_groups", num_groups):
        warnings.warn("num_groups is deprecated: use groups", DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    if groups is None or isinstance(groups, int):
        wanted = groups or 0
        if isinstance(groups, bool) or wanted < 0:
            raise ValueError(f"groups is {groups}: it is a number of groups, from 0, or a list of lists of parameters")
        ordered = list(names)
        each, rest = divmod(len(ordered), wanted) if wanted else (0, 0)
        made, begin = [], 0
        for i in range(min(wanted, len(ordered))):
            end = begin + each + (i < rest)
            made.append(ordered[begin:end])
            begin = end
        return made
    groups = several("groups", groups, "a number of groups, or a list of lists of parameters")
    if not all(isinstance(one, (list, tuple)) for one in groups):
        raise ValueError("groups is a number of groups, or a list of lists of parameters")
    seen = set()
    for group in groups:
        for one in group:
            if not isinstance(one, torch.Tensor):
                raise ValueError(f"groups has {type(one).__name__}: it is a list of lists of parameters")
            if one not in names:
                raise ValueError("groups has a parameter that the optimizer lacks, or that needs no gradient")
            if one in seen:
                raise ValueError(f"groups has '{names[one]}' twice")
            seen.add(one)
    return [list(group) for group in groups]


def _check_overlap(model: Any, optimizer: torch.optim.Optimizer, names: Dict[torch.Tensor, str], compression: Any, op: int) -> None:
    if not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise refused("overlap_forward", model, "the model, a torch.nn.Module that is no ScriptModule, or None")
    if not any(one in names for one in model.parameters()):
        raise ValueError("overlap_forward is a model of which the optimizer has no parameter")
    if update_of(wrapped_class(optimizer)) is None:
        raise ValueError("overlap_forward needs an optimizer of torch that updates each parameter by itself, as SGD or Adam, with torch's own step(): "
                         f"{type(optimizer).__name__} is none of these")
    if op == operations.Adasum or compression not in (NoneCompressor, *_WIRES):
        raise ValueError("overlap_forward takes op Average or another one but Adasum, and Compression.none, fp16 or bf16")


def DistributedOptimizer(optimizer: torch.optim.Optimizer, named_parameters: Optional[Iterable[Any]] = None, compression: Any = Compression.none,
                         backward_passes_per_step: int = 1, op: int = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                         groups: Union[None, int, Sequence[Any]] = None, sparse_as_dense: bool = False,
                         process_set: ProcessSet = global_process_set, overlap_forward: Optional[torch.nn.Module] = None) -> Any:
    """The optimizer, with gradients that are reduced over all ranks while backward goes on; step() waits for them.

    It is an instance of the user's class too. `backward_passes_per_step`: gradients of so many passes are summed before they
    are reduced. `gradient_predivide_factor`: a part of the average's division comes before the sum. `groups`: parameters that
    are reduced together. `sparse_as_dense`: sparse gradients travel as dense tensors; else they travel as rows, or as dense tensors if
    that moves fewer bytes. They stay sparse in both cases. With op=Adasum the steps of the parameters are reduced and not the gradients:
    each rank makes its own step, and the ranks' steps are summed by Adasum. `overlap_forward`: the model. Then step() does not wait: a
    parameter is updated when the model's next forward pass calls the module that uses it, and has no gradient from step() on.
    """
    if not isinstance(getattr(optimizer, "param_groups", None), list):
        raise refused("optimizer", optimizer, "an optimizer of torch")
    if getattr(optimizer, "_averages_parameters", False):
        raise ValueError("a LocalSGD makes steps of each rank's own gradients: give it the DistributedOptimizer, not the other way round")
    if isinstance(compression, DGC):
        check_optimizer(optimizer)
        if op not in (Average, Sum):
            raise ValueError(f"DGC reduces gradients by Average or Sum, not {operations.OP_NAMES[operations.checked_op(op)]}")
    else:
        checked_compression(compression)
    checked_set(process_set)
    gradient_predivide_factor = number("gradient_predivide_factor", gradient_predivide_factor)
    if gradient_predivide_factor <= 0:
        raise ValueError(f"gradient_predivide_factor is {gradient_predivide_factor}: it is above 0")
    operations.checked_op(op)
    if op != Average and gradient_predivide_factor != 1.0:
        raise ValueError("gradient_predivide_factor is a part of the division of op=Average: leave it out with another op")
    backward_passes_per_step = count("backward_passes_per_step", backward_passes_per_step)
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}; it is 1 or more")
    names = _named(optimizer, named_parameters)
    if overlap_forward is not None:
        _check_overlap(overlap_forward, optimizer, names, compression, op)
    made_groups = _grouped(groups, num_groups, names)
    basics._known()
    wrapped = wrapped_class(optimizer)
    if op == operations.Adasum:
        return adasum_optimizer(optimizer, wrapped, names, compression, process_set)
    methods = {key: value for key, value in _DistributedOptimizer.__dict__.items() if key not in ("__dict__", "__weakref__", "__doc__", "__module__")}
    cls: Any = type(wrapped.__name__, (wrapped,), {**methods, "_wrapped": wrapped, "__doc__": wrapped.__doc__})
    made = object.__new__(cls)
    adopt(made, optimizer)
    made._set_up(names, compression, backward_passes_per_step, op, gradient_predivide_factor, made_groups, sparse_as_dense, process_set, overlap_forward)
    return made
