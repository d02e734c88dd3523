"""bench/gradients' subjects: a rank of a job whose training steps have a backward pass of a given length, in which the gradients of a
model become ready one after the other, each after a share of the time in proportion to its elements. The rank sleeps meanwhile: it
stands for one whose accelerator computes. Arguments: SUBJECT MODEL COMPUTE_S STEPS; prints the median step of the slowest rank."""
import datetime
import math
import os
import statistics
import sys
import time

import torch

from shapes import MODELS

subject, model, compute_s, steps = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
WARMUP = 75 if subject == "aiacc-tuned" else 12  # schedules, caches, buckets and the tuner settle


class Ready(torch.autograd.Function):
    """The parameter's gradient is `given`, once its share of the backward pass is over."""

    @staticmethod
    def forward(context, x, parameter, given, clock, due_s):
        context.given, context.clock, context.due_s = given, clock, due_s
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        left = context.clock[0] + context.due_s - time.perf_counter()
        if left > 0:
            time.sleep(left)
        return gradient, context.given, None, None, None


class Replay(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parameters_in_order = torch.nn.ParameterList(torch.zeros(shape) for shape in MODELS[model]())
        self.given = [torch.full_like(parameter, 1e-3) for parameter in self.parameters_in_order]
        total, done, self.due_s = sum(p.numel() for p in self.parameters_in_order), 0, {}
        for index in reversed(range(len(self.parameters_in_order))):
            done += self.parameters_in_order[index].numel()
            self.due_s[index] = compute_s * done / total
        self.clock = [0.0]

    def forward(self, x):
        for index, parameter in enumerate(self.parameters_in_order):
            x = Ready.apply(x, parameter, self.given[index], self.clock, self.due_s[index])
        return x


def prepared(net):
    """(module, optimizer, ranks, the maximum of a number over ranks)"""
    sgd = torch.optim.SGD(net.parameters(), lr=1e-3)
    if subject.startswith("ddp-"):
        import torch.distributed as dist
        if subject == "ddp-aiacc":
            import aiacc.torch  # noqa: F401: registers the back end
        dist.init_process_group(subject.removeprefix("ddp-"), timeout=datetime.timedelta(seconds=120))

        def most(value):
            tensor = torch.tensor([value])
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
            return float(tensor)
        module = torch.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
        return module, sgd, dist.get_rank(), most
    if subject == "horovod":
        import horovod.torch as hvd
    else:
        import aiacc.torch as hvd
    hvd.init()
    wire = {"compression": hvd.Compression.fp16} if subject == "aiacc-fp16" else {}
    optimizer = hvd.DistributedOptimizer(sgd, named_parameters=net.named_parameters(), **wire)
    return net, optimizer, hvd.rank(), lambda value: max(hvd.allgather(torch.tensor([value])).tolist())


def main():
    net = Replay()
    module, optimizer, rank, most = prepared(net)
    x = torch.zeros(1, requires_grad=True)
    times = []
    for step in range(WARMUP + steps):
        most(0.0)  # all begin together
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = module(x).sum()
        net.clock[0] = time.perf_counter()
        loss.backward()
        optimizer.step()
        if step >= WARMUP:
            times.append(time.perf_counter() - began)
    expected = -1e-6 * (WARMUP + steps)
    last = net.parameters_in_order[0]
    if not math.isclose(float(last.detach().flatten()[-1]), expected, rel_tol=1e-3):
        print(f"wrong result: {float(last.detach().flatten()[-1])} instead of {expected}", flush=True)
    slowest = most(statistics.median(times))
    if rank == 0:
        print(f"step {subject} {model} {compute_s} {slowest:.6f}", flush=True)
    sys.stdout.flush()
    if subject.startswith("ddp-"):
        torch.distributed.barrier()  # rank 0 holds the store of the others
        torch.distributed.destroy_process_group()
    if subject in ("ddp-gloo", "horovod"):
        os._exit(0)  # threads of Gloo and Horovod that outlive the interpreter's last lines end in a deadlock now and then

main()
