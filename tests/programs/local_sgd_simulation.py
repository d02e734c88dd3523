"""What LocalSGD should do, by a simulation of all ranks in each, for the programs that train beside it. Checks are theirs."""
import copy

import torch

import aiacc.torch as hvd
from torch_checks import equal, same
from torch_optimizer import batch, loss_of, network


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def nesterov(parameters):
    return torch.optim.SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)


class Simulated:
    """Models of all ranks in one process."""

    def __init__(self, model, make, period, warmup_steps=0, outer_optimizer=None, delay=0, parts=None):
        self.models = [copy.deepcopy(model) for _ in range(hvd.size())]
        self.optimizers = [make(one.parameters()) for one in self.models]
        self.period, self.warmup, self.delay = period, warmup_steps, delay
        self.tensors = [list(one.parameters()) for one in self.models]
        self.parts = parts or [list(range(len(self.tensors[0])))]
        self.base = [one.detach().clone() for one in self.tensors[0]]
        self.has_base = [False] * len(self.parts)
        self.outer = None if outer_optimizer is None else outer_optimizer(self.base)
        self.on_way = {}
        self.at = 0

    def step(self, backward):
        """`backward(rank, model)`"""
        self.at += 1
        for rank, (model, optimizer) in enumerate(zip(self.models, self.optimizers)):
            optimizer.zero_grad()
            backward(rank, model)
        if self.at <= self.warmup:
            for same_of_all in zip(*self.tensors):
                mean = sum(one.grad for one in same_of_all) / len(self.models)
                for one in same_of_all:
                    one.grad = mean.clone()
        for optimizer in self.optimizers:
            optimizer.step()
        if self.at <= self.warmup:
            return
        self.before_averages()
        for number, part in enumerate(self.parts):
            offset = number * self.period // len(self.parts)
            if number in self.on_way and self.at >= self.on_way[number][0] + self.delay:
                self.end(number)
            if (self.at - self.warmup - offset) % self.period == 0:
                self.on_way[number] = (self.at, [[tensors[i].detach().clone() for i in part] for tensors in self.tensors])
                if self.delay == 0:
                    self.end(number)
        self.after_averages()

    def before_averages(self):
        """For what comes between them (torch_gossip.py)."""

    def after_averages(self):
        pass

    @torch.no_grad()
    def end(self, number):
        _, sent = self.on_way.pop(number)
        part = self.parts[number]
        for place, i in enumerate(part):
            mean = sum(of_rank[place].double() for of_rank in sent) / len(sent)
            if self.outer is None or not self.has_base[number]:
                self.base[i].copy_(mean)
            else:
                self.base[i].grad = (self.base[i] - mean).to(self.base[i].dtype)
        if self.outer is not None and self.has_base[number]:
            self.outer.step()
            self.outer.zero_grad(set_to_none=True)
        self.has_base[number] = True
        for tensors, of_rank in zip(self.tensors, sent):
            for place, i in enumerate(part):
                tensors[i].copy_(self.base[i] + (tensors[i] - of_rank[place] if self.delay else 0))


def backward_of(step):
    return lambda rank, model: loss_of(model, batch(step, rank)).backward()


def parts_of(optimizer, model):
    """Places of the parameters of each fragment."""
    order = {id(one): i for i, one in enumerate(model.parameters())}
    return [[order[id(one)] for one in fragment.tensors] for fragment in optimizer._fragments if id(fragment.tensors[0]) in order]


def all_equal(model):
    """Its parameters on all ranks, to the bit."""
    for one in model.parameters():
        found = hvd.allgather(one.detach().reshape(1, -1))
        for other in found[1:]:
            equal(found[0], other)


def train(make, steps, tolerance=1e-5, model=None, simulator=Simulated, **arguments):
    """Sees that the model of this rank is its simulated one behind each step."""
    model = network() if model is None else model
    optimizer = hvd.LocalSGD(make(model.parameters()), **arguments)
    known = {name: value for name, value in arguments.items() if name in ("period", "warmup_steps", "outer_optimizer", "delay")}
    simulated = simulator(model, make, parts=parts_of(optimizer, model), **known)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
        simulated.step(backward_of(step))
        same(model, simulated.models[hvd.rank()], tolerance)
    return model, optimizer, simulated
