"""bench/gradients' subjects: a rank of a job whose training steps have a backward pass of a given length, in which the gradients of a
model become ready one after the other, each after a share of the time in proportion to its elements. The rank sleeps meanwhile: it
stands for one whose accelerator computes. Arguments: SUBJECT MODEL COMPUTE_S,COMPUTE_S... STEPS WARMUP none|zeros FORWARD_S SGD|Adam; prints for
each length the median step of the slowest rank. none or zeros is what zero_grad leaves of a gradient: with zeros it stays where it is. The forward
pass takes FORWARD_S, each parameter a share in proportion to its elements.

SUBJECT is none (no communication: the ranks do not know each other, begin their steps together by the clock, and each prints its own),
aiacc, aiacc-tuned, aiacc-dgc (Deep Gradient Compression, of gradients at random), horovod, or ddp- and a back end of torch.distributed; with -fp16
behind it gradients travel in 16 bits; aiacc-overlap updates a parameter when the next forward pass needs it. Of aiacc-local,
aiacc-local-delayed and ddp-gloo-local, which average parameters every PERIOD-th step, and aiacc-local-gossip, which exchanges half of them with one host behind
five of eight steps besides, the time is the mean step."""
import ctypes
import datetime
import math
import os
import statistics
import sys
import time

import torch

from shapes import MODELS

subject, model, steps, zero, forward_s = sys.argv[1], sys.argv[2], int(sys.argv[4]), sys.argv[6], float(sys.argv[7])
computes_s = [float(word) for word in sys.argv[3].split(",")]
library, fp16 = subject.removesuffix("-fp16"), subject.endswith("-fp16")
torch.set_num_threads(1)
WARMUP = 75 if library == "aiacc-tuned" else int(sys.argv[5])  # schedules, caches, buckets and the tuner settle
PERIOD = 8  # of local steps; STEPS is a multiple of it, and so are the steps before
averages_parameters = "-local" in subject
middle = statistics.mean if averages_parameters else statistics.median
WARMUP_AGAIN = PERIOD if averages_parameters else 4  # another timeline, to which only the tuner has more to adapt


class Given:
    """A gradient that backward makes, again and again in the same memory."""

    def __init__(self, parameter):
        self.memory = torch.full_like(parameter, 1e-3)
        self.random = torch.randn_like(parameter) if library == "aiacc-dgc" else None  # of equal ones none would be larger
        self.flat = (ctypes.c_float * parameter.numel()).from_address(self.memory.data_ptr())
        self.tensor = None

    def make(self):
        """Nobody else's: as of one that a layer has made, autograd takes it over without a copy, and so may a library."""
        if self.random is not None:
            self.memory.copy_(self.random)
        flat = torch.frombuffer(self.flat, dtype=torch.float32)
        self.tensor = torch.empty(0).set_(flat, 0, self.memory.shape, self.memory.stride())

    def take(self):
        tensor, self.tensor = self.tensor, None
        return tensor


class Ready(torch.autograd.Function):
    """The parameter's gradient is `given`, once its share of the backward pass is over, or a copy of it if zero_grad would overwrite it."""

    @staticmethod
    def forward(context, x, parameter, given, clock, share):
        context.given, context.clock, context.share = given, clock, share
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        began, compute_s = context.clock
        left = began + compute_s * context.share - time.perf_counter()
        if left > 0:
            time.sleep(left)
        given = context.given.take() if zero == "none" else context.given.memory
        return gradient, given, None, None, None


class Layer(torch.nn.Module):
    """A parameter, whose part of the forward pass takes some time."""

    def __init__(self, shape, clock):
        super().__init__()
        self.parameter = torch.nn.Parameter(torch.zeros(shape))
        self.given, self.clock, self.done, self.share = Given(self.parameter), clock, 0.0, 0.0

    def forward(self, x, due):
        """`due`: when the layer before ends, in a list. Sleeps only for what is worth it, and counts the rest."""
        if forward_s > 0:
            due[0] = max(due[0], time.perf_counter()) + forward_s * self.share
            if (left := due[0] - time.perf_counter()) > 1e-3:
                time.sleep(left)
        return Ready.apply(x, self.parameter, self.given, self.clock, self.done)


class Replay(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.clock = [0.0, 0.0]  # when backward began, and how long it takes
        self.layers = torch.nn.ModuleList(Layer(shape, self.clock) for shape in MODELS[model]())
        total, done = sum(layer.parameter.numel() for layer in self.layers), 0
        for layer in reversed(self.layers):
            done += layer.parameter.numel()
            layer.done, layer.share = done / total, layer.parameter.numel() / total

    def forward(self, x):
        due = [time.perf_counter()]
        for layer in self.layers:
            x = layer(x, due)
        if (left := due[0] - time.perf_counter()) > 0:
            time.sleep(left)
        return x


def prepared(net):
    """(module, optimizer, ranks, the maximum of a number over ranks)"""
    sgd = torch.optim.SGD(net.parameters(), lr=1e-3) if sys.argv[8] == "SGD" else torch.optim.Adam(net.parameters(), lr=1e-6)
    if library == "none":
        return net, sgd, 0, lambda value: value
    if library.startswith("ddp-"):
        import torch.distributed as dist
        if library == "ddp-aiacc":
            import aiacc.torch  # noqa: F401: registers the back end
        dist.init_process_group(library.removeprefix("ddp-").removesuffix("-local"), timeout=datetime.timedelta(seconds=120))

        def most(value):
            tensor = torch.tensor([value])
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
            return float(tensor)
        if averages_parameters:
            from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
            from torch.distributed.optim import PostLocalSGDOptimizer
            return net, PostLocalSGDOptimizer(sgd, PeriodicModelAverager(period=PERIOD, warmup_steps=PERIOD)), dist.get_rank(), most
        module = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
        if fp16:
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
            module.register_comm_hook(None, fp16_compress_hook)
        return module, sgd, dist.get_rank(), most
    if library == "horovod":
        import horovod.torch as hvd
    else:
        import aiacc.torch as hvd
    hvd.init()
    wire = {"compression": hvd.Compression.fp16} if fp16 else {"compression": hvd.DGC()} if library == "aiacc-dgc" else {}
    if library == "aiacc-overlap":
        wire["overlap_forward"] = net
    def largest(value):
        return max(hvd.allgather(torch.tensor([value])).tolist())
    if averages_parameters:  # an average has three steps to arrive before the next fragment's begins
        arguments = {} if library == "aiacc-local" else {"fragments": 2, "delay": 3}
        if library == "aiacc-local-gossip":
            short = hvd.Compression.fp16
            arguments |= {"compression": short, "gossip": hvd.Gossip(compression=short, delay=1)}
        return net, hvd.LocalSGD(sgd, PERIOD, **arguments), hvd.rank(), largest
    optimizer = hvd.DistributedOptimizer(sgd, named_parameters=net.named_parameters(), **wire)
    return net, optimizer, hvd.rank(), largest


def wait_for_others(net, compute_s):
    """For ranks that do not know each other, on one machine: until the clock's next multiple of a time that is longer than a step. What
    is not the backward pass they do at the same time then, as ranks that communicate do, and share the processors for it."""
    period_s = compute_s + forward_s + 1e-8 * sum(layer.parameter.numel() for layer in net.layers)
    time.sleep(period_s - time.monotonic() % period_s)


def main():
    net = Replay()
    module, optimizer, rank, most = prepared(net)
    x = torch.zeros(1, requires_grad=True)
    done = 0
    for number, compute_s in enumerate(computes_s):
        net.clock[1] = compute_s
        warmup = WARMUP if number == 0 or library == "aiacc-tuned" else WARMUP_AGAIN
        times = []
        for step in range(warmup + steps):
            if zero == "none":
                for layer in net.layers:
                    layer.given.make()
            if forward_s == 0 or step == 0:  # all begin together; with a forward pass a step begins with what is left of the one before
                wait_for_others(net, compute_s) if library == "none" else most(0.0)
                began = time.perf_counter()
            net.zero_grad(set_to_none=zero == "none")  # Horovod's optimizer has no choice
            loss = module(x).sum()
            net.clock[0] = time.perf_counter()
            loss.backward()
            optimizer.step()
            ended = time.perf_counter()
            if step >= warmup:
                times.append(ended - began)
            began = ended
        done += warmup + steps
        slowest = most(middle(times))
        if rank == 0:
            print(f"step {subject} {model} {compute_s} {slowest:.6f}", flush=True)
    expected = -1e-6 * done
    if hasattr(optimizer, "average"):
        optimizer.average()
    last = next(net.parameters())
    if library != "aiacc-dgc" and not math.isclose(float(last.detach().flatten()[-1]), expected, rel_tol=2e-3):
        print(f"wrong result: {float(last.detach().flatten()[-1])} instead of {expected}", flush=True)
    sys.stdout.flush()
    if library.startswith("ddp-"):
        torch.distributed.barrier()  # rank 0 holds the store of the others
        torch.distributed.destroy_process_group()
    if library in ("ddp-gloo", "ddp-gloo-local", "horovod"):
        os._exit(0)  # threads of Gloo and Horovod that outlive the interpreter's last lines end in a deadlock now and then

main()
