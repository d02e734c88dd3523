"""bench/softmax' subjects: a rank that trains the last layer of a classifier on features that are given, by plain SGD without momentum.
Arguments: SUBJECT CLASSES FEATURES ROWS STEPS. Prints, of the slowest or biggest rank: seconds of the median step, the MiB that the
rank has more at the end than before the layer was made (its own memory, and its share of what it shares with others), the bytes a step
that left the most busy host by Ethernet, and the first step's loss.

  sharded        the classes are split over the ranks: allgather of the features, aiacc_softmax_loss, reduce-scatter of their gradients
  partial-fc     the same, with a tenth of each rank's classes in a step (aiacc_softmax_sample)
  data-parallel  each rank has all classes: the softmax is local, and an allreduce adds the gradients of all weights, which are in
                 memory that the ranks of a host share
"""
import pathlib
import statistics
import sys
import time

import torch

import aiacc
from aiacc import softmax
from aiacc.buffers import Buffer, DType, Op

SUBJECT = sys.argv[1]
CLASSES, FEATURES, ROWS, STEPS = map(int, sys.argv[2:6])
SAMPLED, RATE, WARM_UP = 0.1, 0.1, 2
WORLD = aiacc.WORLD
torch.set_num_threads(1)


def floats(tensor):
    return Buffer(tensor.data_ptr(), tensor.numel(), DType.FLOAT32, tensor)


def own_mib():
    """What the rank has to itself, and its share of what it shares with others."""
    for line in pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise OSError("no Pss in /proc/self/smaps_rollup")


def sent_bytes():
    """Of this host by Ethernet, ever; the first of its ranks counts them."""
    if WORLD.local_rank != 0 or WORLD.local_size == WORLD.size:
        return 0
    return int(pathlib.Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())


def weights(first, classes):
    """The same for a class wherever it is, made without a second copy."""
    made = torch.empty(classes, FEATURES)
    columns = torch.arange(FEATURES) * 104729
    for begin in range(0, classes, 10000):
        rows = torch.arange(first + begin, first + min(begin + 10000, classes))
        made[begin:begin + len(rows)] = ((rows[:, None] * 7919 + columns) % 1009) / 5045 - 0.1
    return made


def batch(step, rank):
    """Features and labels of a rank."""
    chosen = torch.Generator().manual_seed(step * 1000 + rank)
    return torch.randn(ROWS, FEATURES, generator=chosen), torch.randint(CLASSES, (ROWS,), generator=chosen)


class Sharded:
    def __init__(self):
        self.first, self.classes = softmax.split(CLASSES, WORLD)
        self.weight, rows = weights(self.first, self.classes), ROWS * WORLD.size
        sampled = SUBJECT == "partial-fc"
        self.ids = torch.empty(self.classes, dtype=torch.int64) if sampled else None
        wide = min(self.classes, int(SAMPLED * self.classes) + rows) if sampled else self.classes
        self.features, self.labels = torch.empty(rows, FEATURES), torch.empty(rows, dtype=torch.int64)
        self.logits, self.gradient, self.back = torch.empty(rows * wide), torch.empty(wide, FEATURES), torch.empty(rows, FEATURES)
        self.part, self.losses = torch.empty(ROWS, FEATURES), torch.empty(rows, dtype=torch.float64)

    def step(self, number, features, labels):
        rows = len(self.labels)
        WORLD.allgather(floats(features), floats(self.features))
        WORLD.allgather(Buffer(labels.data_ptr(), ROWS, DType.INT64, labels), Buffer(self.labels.data_ptr(), rows, DType.INT64, self.labels))
        weight, classes, ids = self.weight, self.classes, None
        if self.ids is not None:
            classes = softmax.sample(self.first, self.classes, self.labels.data_ptr(), rows, int(SAMPLED * self.classes), number, self.ids.data_ptr())
            ids = self.ids[:classes] - self.first
            weight = self.weight[ids]
        logits = self.logits[:rows * classes].view(rows, classes)
        torch.mm(self.features, weight.t(), out=logits)
        softmax.loss(WORLD, rows, CLASSES, classes, self.first, DType.FLOAT32, logits.data_ptr(), self.labels.data_ptr(), self.losses.data_ptr(),
                     None if ids is None else self.ids.data_ptr())
        gradient = torch.mm(logits.t(), self.features, out=self.gradient[:classes])
        torch.mm(logits, weight, out=self.back)
        WORLD.reduce_scatter(floats(self.back), floats(self.part), Op.SUM)
        if ids is None:
            self.weight.add_(gradient, alpha=-RATE)
        else:
            self.weight.index_add_(0, ids, gradient, alpha=-RATE)
        return float(self.losses.mean())


class DataParallel:
    def __init__(self):
        self.weight = weights(0, CLASSES)
        self.memory = aiacc.Memory(CLASSES * FEATURES * 4)
        self.gradient = torch.frombuffer(self.memory.array, dtype=torch.float32).view(CLASSES, FEATURES)
        self.logits, self.back = torch.empty(ROWS, CLASSES), torch.empty(ROWS, FEATURES)

    def step(self, _, features, labels):
        rows = torch.arange(ROWS)
        torch.mm(features, self.weight.t(), out=self.logits)
        target = self.logits[rows, labels].double()
        losses = torch.logsumexp(self.logits, 1).double() - target
        torch.softmax(self.logits, 1, out=self.logits)
        self.logits[rows, labels] -= 1
        self.logits /= ROWS * WORLD.size
        torch.mm(self.logits.t(), features, out=self.gradient)
        torch.mm(self.logits, self.weight, out=self.back)
        WORLD.allreduce(floats(self.gradient))
        self.weight.add_(self.gradient, alpha=-RATE)
        return float(losses.mean())


def over_ranks(value, op):
    told = torch.tensor([value], dtype=torch.float64)
    WORLD.allreduce(Buffer(told.data_ptr(), 1, DType.FLOAT64, told), op=op)
    return float(told)


def main():
    aiacc.init()
    torch.mm(torch.ones(64, 64), torch.ones(64, 64))  # the libraries' own memory
    before = own_mib()
    layer = DataParallel() if SUBJECT == "data-parallel" else Sharded()
    times, loss, sent = [], None, 0
    for number in range(WARM_UP + STEPS):
        features, labels = batch(number, WORLD.rank)
        WORLD.barrier()
        if number == WARM_UP:
            sent = sent_bytes()
        began = time.perf_counter()
        its_loss = layer.step(number, features, labels)
        times.append(time.perf_counter() - began)
        loss = its_loss if loss is None else loss
    WORLD.barrier()
    sent = (sent_bytes() - sent) / STEPS
    took, mib = over_ranks(statistics.median(times[WARM_UP:]), Op.MAX), over_ranks(own_mib() - before, Op.MAX)
    sent, loss = over_ranks(sent, Op.MAX), over_ranks(loss, Op.SUM) / WORLD.size
    if WORLD.rank == 0:
        print(f"step {took:.6f} {mib:.1f} {sent:.0f} {loss:.9g}", flush=True)
    aiacc.finalize()


main()
