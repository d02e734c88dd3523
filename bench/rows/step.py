"""bench/rows' subjects: a rank that has the sparse gradient of an embedding reduced, again and again. Arguments: SUBJECT TABLE_ROWS WIDTH ROWS
STEPS. Prints the seconds of the median step, of the slowest rank, and a number that all subjects have alike.

  engine     a table of the gradient engine, by aiacc.torch's DistributedOptimizer
  gloo       torch.distributed.all_reduce of the sparse tensor over Gloo
"""
import statistics
import sys
import time

import torch

SUBJECT = sys.argv[1]
TABLE_ROWS, WIDTH, ROWS, STEPS = map(int, sys.argv[2:6])
WARM_UP, GRADIENTS = 12, 4  # steps before a schedule is there, and different gradients
torch.set_num_threads(1)


def gradient(step, rank):
    chosen = torch.Generator().manual_seed(step % GRADIENTS * 1000 + rank)
    numbers = torch.randint(TABLE_ROWS, (1, ROWS), generator=chosen)
    values = torch.randint(10, (ROWS, WIDTH), generator=chosen).float()
    return torch.sparse_coo_tensor(numbers, values, (TABLE_ROWS, WIDTH)).coalesce()


class Gloo:
    def __init__(self):
        import torch.distributed as dist
        dist.init_process_group("gloo")
        self.dist, self.rank = dist, dist.get_rank()

    def reduce(self, given):
        result = given.clone()
        self.dist.all_reduce(result)
        return result

    def barrier(self):
        self.dist.barrier()

    def slowest(self, seconds):
        told = torch.tensor([seconds], dtype=torch.float64)
        self.dist.all_reduce(told, op=self.dist.ReduceOp.MAX)
        return float(told)

    def end(self):
        self.dist.destroy_process_group()


class Optimizer:
    """Its gradients are given, and it moves nothing."""

    def __init__(self):
        import aiacc.torch as hvd
        hvd.init()
        self.hvd, self.rank = hvd, hvd.rank()
        self.weight = torch.nn.Parameter(torch.zeros(TABLE_ROWS, WIDTH))
        self.optimizer = hvd.DistributedOptimizer(torch.optim.SGD([self.weight], lr=0.0), [("weight", self.weight)], op=hvd.Sum)

    def reduce(self, given):
        self.weight.grad = given
        self.optimizer.synchronize()
        self.optimizer._synchronized = False
        return self.weight.grad

    def barrier(self):
        self.hvd.barrier()

    def slowest(self, seconds):
        return float(self.hvd.allreduce(torch.tensor([seconds], dtype=torch.float64), op=self.hvd.Max))

    def end(self):
        self.hvd.shutdown()


def main():
    subject = Gloo() if SUBJECT == "gloo" else Optimizer()
    gradients = [gradient(step, subject.rank) for step in range(GRADIENTS)]
    times, total = [], 0.0
    for step in range(WARM_UP + STEPS):
        subject.barrier()
        began = time.perf_counter()
        result = subject.reduce(gradients[step % GRADIENTS])
        times.append(time.perf_counter() - began)
        if step < GRADIENTS:
            total += float(result.coalesce().values().double().sum())
    took = subject.slowest(statistics.median(times[WARM_UP:]))
    if subject.rank == 0:
        print(f"step {took:.6f} {total:.17g}", flush=True)
    subject.end()


main()
