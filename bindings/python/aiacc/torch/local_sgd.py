"""LocalSGD: steps of each rank's own, and the average of all ranks' parameters from time to time.

Local SGD: Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019. With gradients of all ranks at first: Lin et al., "Don't Use Large
Mini-Batches, Use Local SGD", ICLR 2020 (post-local SGD). With an optimizer of the averages: Wang et al., "SlowMo", ICLR 2020, and Douillard et al.,
"DiLoCo", 2023. By fragments, while steps go on: Douillard et al., "Streaming DiLoCo with Overlapping Communication", 2025.
"""
from __future__ import annotations

import contextlib
import pickle
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import torch

from aiacc._arguments import count, refused, several
from aiacc._horovod import handles
from aiacc._horovod.exceptions import HorovodInternalError
from aiacc._horovod.process_sets import ProcessSet, checked_set, global_process_set
from aiacc.gradients import Wire
from aiacc.torch import _operations as operations
from aiacc.torch import mpi_ops
from aiacc.torch._averages import Fragment, PendingAverage, carried, parts_of, wait
from aiacc.torch._operations import Average, Join, Sum
from aiacc.torch.compression import BF16Compressor, Compression, FP16Compressor, NoneCompressor
from aiacc.torch.functions import broadcast_optimizer_state
from aiacc.torch.gossip import Exchanges, Gossip

_STEP = "local_sgd_step"  # in the first group of parameters: checkpoints and broadcast_optimizer_state have it, too
_WIRES: Dict[Any, Wire] = {NoneCompressor: Wire.FLOAT32, FP16Compressor: Wire.FLOAT16, BF16Compressor: Wire.BFLOAT16}

_made = 0  # of this process: each has a channel of its own


class LocalSGD(torch.optim.Optimizer):
    """An optimizer in place of the one that is given: step() uses the rank's own gradients, and behind every `period`-th step all ranks' parameters
    are averaged. step() is then collective: all ranks make it equally often, except those that have joined.

        optimizer = hvd.LocalSGD(torch.optim.SGD(model.parameters(), lr=0.1), period=16)

    `optimizer`: of torch, whose parameters are on their devices. A DistributedOptimizer is taken, too: with the process set of a host's ranks, gradients are
    reduced within the host in each step. `warmup_steps`: so many first steps use the average of all ranks' gradients; ranks begin them with equal parameters
    (broadcast_parameters). What is clipped before step() is each rank's own gradient.
    `outer_optimizer`: is called with a list of parameters, copies of the model's, and returns an optimizer of them, as `lambda parameters:
    torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)` (DiLoCo). It is the attribute `outer_optimizer`, and each average is a step of it: its gradient is
    what all ranks had after the last average less the average of what they have now. The first average, with which these copies begin, is taken as it is.
    `fragments`: the parameters in so many parts, which are averaged one after the other within a period. `delay`: so many steps are made while an average is on
    its way; what they have changed is added to it, so that ranks differ by it. `compression`: Compression.fp16 or bf16: what parameters have changed since the last average
    travels in 16 bits, but for those of float64. `buffers`: tensors that are averaged with the first fragment, as running statistics are (`model.buffers()`); those of
    integers are left alone. `gossip`: exchanges with one node at a time between the averages.

    Momentum and the like stay each rank's own. All ranks make one with the same arguments, in the same order, and outside of what hvd.elastic.run runs. After
    broadcast_optimizer_state, join, init and load_state_dict the next average is one of whole parameters, taken as it is.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, period: int, *, warmup_steps: int = 0, outer_optimizer: Optional[Callable[[Any], Any]] = None,
                 fragments: int = 1, delay: int = 0, compression: Any = Compression.none, buffers: Iterable[torch.Tensor] = (),
                 gossip: Optional[Gossip] = None, process_set: ProcessSet = global_process_set) -> None:
        global _made
        if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer, LocalSGD):
            raise refused("optimizer", optimizer, "an optimizer of torch, or a DistributedOptimizer")
        self._period, self._warmup, self._delay = count("period", period), count("warmup_steps", warmup_steps), count("delay", delay)
        many = count("fragments", fragments)
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        for name, value, least, most, bound in (("period", self._period, 1, None, ""), ("warmup_steps", self._warmup, 0, None, ""),
                                                ("delay", self._delay, 0, self._period - 1, "period - 1"),
                                                ("fragments", many, 1, min(self._period, len(parameters)), "period, and the number of parameters")):
            if value < least or most is not None and value > most:
                raise ValueError(f"{name} is {value}: it is {least} or more" + (f", and at most {most} ({bound})" if most is not None else ""))
        if not isinstance(compression, type) or compression not in _WIRES:
            raise refused("compression", compression, "Compression.none, Compression.fp16 or Compression.bf16")
        if outer_optimizer is not None and not callable(outer_optimizer):
            raise refused("outer_optimizer", outer_optimizer, "None, or a function of a list of parameters that returns an optimizer of them")
        if self._warmup and isinstance(optimizer, torch.optim.LBFGS):
            raise ValueError("warmup_steps are not for torch.optim.LBFGS, which computes gradients as often as each rank's own loss asks for")
        if gossip is not None and not isinstance(gossip, Gossip):
            raise refused("gossip", gossip, "None, or a Gossip")
        if gossip is not None and gossip.every >= self._period:
            raise ValueError(f"gossip: every is {gossip.every}: it is less than the period of averages, which is {self._period}")
        self._many = len(parameters)
        averaged = [one for one in several("buffers", buffers, "tensors, as model.buffers() are") if torch.is_floating_point(one)]
        if any(not torch.is_floating_point(one) for one in parameters):
            raise ValueError("LocalSGD is for parameters of real floating-point numbers")
        self.optimizer, self._process_set, self._compression = optimizer, checked_set(process_set), compression
        self._gossip = gossip
        self._turns = [] if gossip is None else [gossip.turns(i, many, self._period, i * self._period // many, self._delay) for i in range(many)]
        self._synchronizes = hasattr(optimizer, "skip_synchronize")  # it is one of DistributedOptimizer
        keeps_base = outer_optimizer is not None or any(one is not NoneCompressor for one in (compression, gossip and gossip.compression) if one)
        self._fragments = [Fragment(i, part, i * self._period // many, keeps_base, _WIRES[compression]) for i, part in enumerate(parts_of(parameters, many))]
        self.outer_optimizer = None
        if outer_optimizer is not None:
            self.outer_optimizer = outer_optimizer([one for fragment in self._fragments for one in fragment.base])
            if not isinstance(self.outer_optimizer, torch.optim.Optimizer):
                raise refused("outer_optimizer", self.outer_optimizer, "a function that returns an optimizer of torch")
        if averaged:
            self._fragments.append(Fragment(many, averaged, 0, False, Wire.FLOAT32))
        self._number = _made
        _made += 1
        self._in_world = _InWorld(self)
        if process_set.included():
            process_set._optimizers.append(self._in_world)

    # --- an optimizer of torch

    _averages_parameters = True

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # which is not there yet
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.optimizer.state

    @property
    def param_groups(self) -> Any:  # type: ignore[override]
        return self.optimizer.param_groups

    @property
    def defaults(self) -> Any:  # type: ignore[override]
        return self.optimizer.defaults

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """A GradScaler calls step() on ranks with gradients that are not finite, too, which steps are counted on."""
        return hasattr(torch.amp, "GradScaler")  # torch >= 2.3

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a LocalSGD is not copied or pickled: keep its state_dict()")

    def __repr__(self) -> str:
        return f"LocalSGD of {self._period} steps: {self.optimizer!r}"

    def zero_grad(self, *words: Any, **named: Any) -> None:
        self.optimizer.zero_grad(*words, **named)

    def add_param_group(self, param_group: Any) -> None:
        raise ValueError("a LocalSGD takes no more parameters: add them to the optimizer before it is given")

    def state_dict(self) -> Dict[str, Any]:
        """That of the optimizer, with its own numbers; with `outer_optimizer` that one's, too. Averages on their way are not in it: average() ends them."""
        found = self.optimizer.state_dict()
        return found if self.outer_optimizer is None else {**found, "outer_optimizer": self.outer_optimizer.state_dict()}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """On all ranks, or on one, from which the others get it by broadcast_optimizer_state."""
        rest = dict(state_dict)
        outer = rest.pop("outer_optimizer", None)
        self.optimizer.load_state_dict(rest)
        if outer is not None and self.outer_optimizer is not None:
            self.outer_optimizer.load_state_dict(outer)
        self._begin_anew(waits=True)

    def _was_broadcast(self, root_rank: int, process_set: ProcessSet) -> None:
        """By broadcast_optimizer_state, on all ranks."""
        if self.outer_optimizer is not None:
            broadcast_optimizer_state(self.outer_optimizer, root_rank, process_set=process_set)
        self._begin_anew(waits=True)

    # --- steps

    @property
    def local_step(self) -> int:
        """How many steps were made, those of the checkpoint included."""
        return int(self.param_groups[0].get(_STEP, 0))

    @property
    def steps_since_average(self) -> int:
        """0: each parameter was averaged behind the last step, and is equal on all ranks. One more than all steps if some have not been averaged yet, or not since
        ranks may have got others."""
        return self.local_step - min(one.averaged_at for one in self._fragments)

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:  # type: ignore[override]
        """One step of this rank, and whatever averages begin or end with it."""
        at = self.local_step + 1
        if sum(len(group["params"]) for group in self.param_groups) != self._many:
            raise ValueError("the optimizer of a LocalSGD has got other parameters since: add them before it is given")
        if self._others():
            self._agree()
        warm = at <= self._warmup and self._others()
        loss = None
        if self._unscale(warm):
            loss = self._warm_step(closure) if warm else self.optimizer.step() if closure is None else self.optimizer.step(closure)
        self.param_groups[0][_STEP] = at
        if at <= self._warmup:
            return loss
        for fragment in self._fragments:
            if fragment.average is not None and at >= fragment.average.due:
                self._end(fragment)
            averages = (at - self._warmup - fragment.offset) % self._period == 0
            if averages:
                self._begin(fragment, PendingAverage(self._process_set, at, self._delay, fragment.wire, None))
            else:
                self._exchange(fragment, at)
            if fragment.average is not None and fragment.average.due == at:
                self._end(fragment)
        return loss

    def average(self) -> None:
        """All parameters now, as before an evaluation or a checkpoint, but for those that were averaged behind the last step: what would be done at the end of a
        period, a step of the outer optimizer included. Collective."""
        at = self.local_step
        if self._others():
            self._agree()
        for fragment in self._fragments:
            if fragment.average is not None:
                self._end(fragment)
        moved = [one for one in self._fragments if one.averaged_at < at]
        for fragment in moved:
            self._begin(fragment, PendingAverage(self._process_set, at, 0, fragment.wire, None))
        for fragment in moved:
            self._end(fragment)

    def _others(self) -> bool:
        return self._process_set._reduced_ranks() > 1

    def _warm_step(self, closure: Optional[Callable[[], Any]]) -> Any:
        """With gradients of all ranks."""
        def reduced() -> Any:
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            if self._synchronizes:
                self.optimizer.synchronize()  # type: ignore[attr-defined]
            self._reduce_gradients()
            return loss
        with self.optimizer.skip_synchronize() if self._synchronizes else contextlib.nullcontext():  # type: ignore[attr-defined]
            if closure is not None:
                return self.optimizer.step(reduced)
            if "found_inf" not in self.__dict__:  # otherwise _unscale() has done it
                reduced()
            return self.optimizer.step()

    def _with_gradients(self) -> List[Any]:
        return [one for group in self.param_groups for one in group["params"] if one.grad is not None]

    def _reduce_gradients(self) -> None:
        """Of the ranks that have not joined."""
        sparse = {}
        for one in (one for group in self.param_groups for one in group["params"] if one.requires_grad):
            if one.grad is None:
                one.grad = torch.zeros_like(one)
            elif one.grad.layout != torch.strided:
                sparse[one] = one.grad.sparse_dim()
                one.grad = one.grad.to_dense()
        gradients = [one.grad.detach() for one in self._with_gradients()]
        present = torch.ones(1, dtype=torch.float64)
        mpi_ops.grouped_allreduce_([*gradients, present], op=Average, process_set=self._process_set)
        if float(present) < 1 - 1e-9:
            for gradient in gradients:
                gradient.div_(float(present))
        for one, dims in sparse.items():
            one.grad = one.grad.to_sparse(dims)

    def _unscale(self, warm: bool) -> bool:
        """Where a GradScaler calls step(): divides gradients by the scale that it gives. False: they are not finite, and the step is left out."""
        found: Any = self.__dict__.get("found_inf")
        scale: Any = self.__dict__.get("grad_scale")
        if found is None:
            return True
        if self._synchronizes:
            raise ValueError("a GradScaler does not step a LocalSGD of a DistributedOptimizer, as it looks at gradients before they are reduced")
        for one in self._with_gradients() if scale is not None else ():
            one.grad.div_(scale.to(one.grad.device))
        if not warm:
            return not float(found)
        self._reduce_gradients()
        return all(bool(torch.isfinite(one.grad.to_dense()).all()) for one in self._with_gradients())

    # --- averages

    def _agree(self) -> None:
        """In the first step of each world, with all ranks."""
        self._in_world.agree({
            "period": self._period, "warmup_steps": self._warmup, "delay": self._delay, "compression": self._compression.__name__, "gossip": repr(self._gossip),
            "outer_optimizer": None if self.outer_optimizer is None else type(self.outer_optimizer).__name__,
            "fragments": [[[str(one.dtype), list(one.shape)] for one in fragment.tensors] for fragment in self._fragments]},
            None if self._gossip is None else self._gossip.nodes)

    def _exchange(self, fragment: Fragment, at: int) -> None:
        """Begins it, if it is this fragment's turn, and if this rank exchanges with others then."""
        if self._gossip is None or fragment.number >= len(self._turns):
            return
        number = self._turns[fragment.number].number(at - self._warmup)
        found = None if number is None else self._in_world.exchanges.of(number)
        if found is not None:
            partners, share = found
            self._begin(fragment, PendingAverage(partners, at, self._gossip.delay, _WIRES[self._gossip.compression], share))

    def _begin(self, fragment: Fragment, average: PendingAverage) -> None:
        if fragment.average is not None:  # an exchange
            self._end(fragment)
        short = average.wire != Wire.FLOAT32
        average.relative = short and fragment.has_base
        average.before = [one.detach().clone() for one in fragment.tensors] if average.due > average.at else []
        # Summed up these are the ranks that have not joined, and those of them that have a base.
        average.flags[0], average.flags[1] = 1, fragment.has_base
        if average.process_set._reduced_ranks() > 1:
            average.handles.append(self._start(fragment, average, "flags", average.flags, Sum))
        if short and not fragment.has_base:
            wait(average.handles)
            if average.flags[1] == 0:  # none has one, as before the first average
                average.wire = Wire.FLOAT32
        self._send(fragment, average, "whole part" if short and average.wire == Wire.FLOAT32 else "part")
        fragment.average = average

    def _send(self, fragment: Fragment, average: PendingAverage, what: str) -> None:
        """What the tensors are, or were when this began."""
        sent = average.before or fragment.tensors
        for number, piece in enumerate(fragment.pieces):
            tensors = [carried(sent[i]) for i in piece]
            flat, at = tensors[0].new_empty(sum(one.numel() for one in tensors)), 0
            for i, one in zip(piece, tensors):
                target = flat[at:at + one.numel()].view(one.shape)
                if average.relative:
                    torch.sub(one, fragment.base[i], out=target)
                else:
                    target.copy_(one)
                at += one.numel()
            average.flats.append(flat)
            if average.process_set._reduced_ranks() > 1:
                average.handles.append(self._start(fragment, average, f"{what} {number}", flat, Average))

    def _start(self, fragment: Fragment, average: PendingAverage, what: str, tensor: torch.Tensor, op: int) -> int:
        wire = average.wire if tensor.dtype == torch.float32 else Wire.DEFAULT
        name = f"LocalSGD {self._number}.{fragment.number} {what if average.share is None else f'exchange {what}'}"
        return mpi_ops._start_named(tensor, tensor, name, op, 1.0, 1.0, average.process_set, wire)

    @torch.no_grad()
    def _end(self, fragment: Fragment) -> None:
        average, fragment.average = fragment.average, None
        assert average is not None
        wait(average.handles[:1])
        present, based = average.flags.tolist()
        all_based = based == present
        if not all_based and average.wire != Wire.FLOAT32:  # some have sent parameters in 16 bits, and others changes of what these do not know
            wait(average.handles[1:])
            average.relative, average.wire, average.flats, average.handles[1:] = False, Wire.FLOAT32, [], []
            self._send(fragment, average, "whole part")
        scale = average.process_set._reduced_ranks() / present
        if average.share is not None:
            for i, found in self._arriving(fragment, average, scale):
                self._approach(fragment, average, i, found.add_(fragment.base[i]) if average.relative else found)
            return
        if not fragment.keeps_base:
            for i, found in self._arriving(fragment, average, scale):
                self._give(fragment, average, i, found)
        else:
            steps = self.outer_optimizer is not None and all_based and average.at > self._warmup
            for i, found in self._arriving(fragment, average, scale):
                base = fragment.base[i]
                if steps:
                    base.grad = -found if average.relative else base - found
                else:
                    base.add_(found) if average.relative else base.copy_(found)
            if steps:
                assert self.outer_optimizer is not None
                self.outer_optimizer.step()
                for base in fragment.base:
                    base.grad = None
            fragment.has_base = True
            for i, base in enumerate(fragment.base):
                self._give(fragment, average, i, base)
        # What steps have changed is added with an error of rounding, also where there were none.
        fragment.averaged_at = -1 if average.before and self.local_step == average.at else average.at

    def _arriving(self, fragment: Fragment, average: PendingAverage, scale: float) -> Iterator[Tuple[int, torch.Tensor]]:
        """Averages of the tensors, by their indices: those of each piece once it is there."""
        for number, piece in enumerate(fragment.pieces):
            wait(average.handles[1 + number:2 + number])
            flat, at = average.flats[number], 0
            if scale != 1.0:
                flat.mul_(scale)
            for i in piece:
                tensor = fragment.tensors[i]
                yield i, flat[at:at + tensor.numel()].view(tensor.shape)
                at += tensor.numel()

    def _give(self, fragment: Fragment, average: PendingAverage, i: int, new: torch.Tensor) -> None:
        tensor = fragment.tensors[i].detach()
        if average.before:
            tensor.add_((new - average.before[i]).to(tensor.dtype))
        else:
            tensor.copy_(new)

    def _approach(self, fragment: Fragment, average: PendingAverage, i: int, mean: torch.Tensor) -> None:
        """In an exchange. Two that go all of the way are equal."""
        assert average.share is not None
        own = carried((average.before or fragment.tensors)[i])
        self._give(fragment, average, i, mean if average.share == 1 else own + (mean - own) * average.share)

    def _begin_anew(self, waits: bool) -> None:
        """With the average of what all ranks have."""
        for fragment in self._fragments:
            average, fragment.average = fragment.average, None
            if average is not None and waits:
                try:
                    wait(average.handles)
                except HorovodInternalError:
                    pass
            for handle in () if average is None else average.handles:
                handles.drop(handle)
            fragment.has_base, fragment.averaged_at = False, -1


class _InWorld:
    """What a world knows of an optimizer: it joins with the rank, and ends, or is given up after a loss."""

    def __init__(self, optimizer: LocalSGD) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._process_set = optimizer._process_set
        self.purpose = f"lsgd{optimizer._number}"
        self._agreed = False  # in this world
        self.exchanges = Exchanges([], self._process_set)

    def agree(self, said: Any, nodes: Optional[str]) -> None:
        """With all ranks. `nodes`: that exchange."""
        if self._agreed:
            return
        channel = self._process_set._channel(self.purpose)
        channel.run(operations.Agreement("LocalSGD", said))
        if nodes is not None:
            own = str(channel.group.host_index if nodes == "hosts" else channel.rank).encode()
            self.exchanges = Exchanges.among(channel.run(operations.AllgatherBytes("LocalSGD", own)), self._process_set)
        self._agreed = True

    def join(self) -> None:
        """Then all go on from the step of the rank that has made most, with its outer state, and with an average of what they have."""
        optimizer = self._optimizer()
        if optimizer is None and not self._agreed:
            return
        channel = self._process_set._channel(self.purpose)
        channel.run(Join(None))  # ranks that make their first step meanwhile raise
        step = b"0" if optimizer is None else str(optimizer.local_step).encode()
        steps = list(map(int, channel.run(operations.AllgatherBytes("LocalSGD", step))))
        furthest = steps.index(max(steps))
        state = b""
        if optimizer is not None and optimizer.outer_optimizer is not None and channel.rank == furthest:
            state = pickle.dumps(optimizer.outer_optimizer.state_dict())
        theirs = channel.run(operations.BroadcastBytes("LocalSGD", state, self._process_set._registered()[furthest], furthest))
        if optimizer is None:
            return
        if theirs and optimizer.outer_optimizer is not None and channel.rank != furthest:
            optimizer.outer_optimizer.load_state_dict(pickle.loads(theirs))
        optimizer.param_groups[0][_STEP] = max(steps)
        optimizer._begin_anew(waits=False)

    def steps(self) -> int:
        return 0

    def give_up(self) -> None:
        optimizer = self._optimizer()
        if optimizer is not None:
            optimizer._begin_anew(waits=False)

    def close(self) -> None:
        self._agreed, self.exchanges = False, Exchanges([], self._process_set)
        if self._optimizer() is not None:
            self.give_up()
            self._process_set._optimizers.append(self)


__all__ = ["LocalSGD"]
