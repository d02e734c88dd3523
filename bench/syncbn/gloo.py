"""bench/syncbn's subject for Gloo through torch: a layer as torch.nn.SyncBatchNorm computes it, which knows GPUs only. Forward gathers
(mean, 1 / deviation, count) of all ranks and merges them, backward sums two numbers of each channel. Arguments: CALLS CHANNELS,...
Prints `gloo CHANNELS LAYOUT MICROSECONDS`, the slowest rank's median of forward and backward."""
import statistics
import sys
import time

import torch
import torch.distributed as dist

SAMPLES, POSITIONS, EPSILON = 4, 49, 1e-5
dist.init_process_group("gloo")
torch.set_num_threads(1)
calls = int(sys.argv[1])


class Layer:
    def __init__(self, channels, last):
        shape, self.axes, self.form = ((SAMPLES, POSITIONS, channels), (0, 1), (1, 1, -1)) if last else \
            ((SAMPLES, channels, POSITIONS), (0, 2), (1, -1, 1))
        self.x = (torch.arange(SAMPLES * channels * POSITIONS) * 7919 % 1009).float().reshape(shape)
        self.dy = torch.full_like(self.x, 0.5)
        self.weight, self.bias = torch.ones(channels), torch.zeros(channels)
        self.running = torch.zeros(channels), torch.zeros(channels)
        self.gathered = torch.empty(dist.get_world_size(), 2 * channels + 1)

    def forward(self):
        channels = len(self.weight)
        variance, mean = torch.var_mean(self.x, self.axes, unbiased=False)
        own = torch.cat([mean, torch.rsqrt(variance + EPSILON), torch.full((1,), float(SAMPLES * POSITIONS))])
        dist.all_gather(list(self.gathered.unbind()), own)
        means, inverses, counts = self.gathered.split([channels, channels, 1], 1)
        self.count = counts.sum()
        self.mean = (means * counts).sum(0) / self.count
        variances = inverses.pow(-2) - EPSILON + (means - self.mean) ** 2
        merged = (variances * counts).sum(0) / self.count
        self.scale = torch.rsqrt(merged + EPSILON)
        self.running[0].mul_(0.9).add_(self.mean, alpha=0.1)
        self.running[1].mul_(0.9).add_(merged * (self.count / (self.count - 1)), alpha=0.1)
        factor = self.scale * self.weight
        return torch.addcmul((self.bias - self.mean * factor).view(self.form), self.x, factor.view(self.form))

    def backward(self):
        apart = self.x - self.mean.view(self.form)
        sums = torch.cat([self.dy.sum(self.axes), (self.dy * apart).sum(self.axes)])
        channels = len(self.weight)
        gradients = sums[channels:] * self.scale, sums[:channels].clone()
        dist.all_reduce(sums)
        of_ones, of_apart = (sums / self.count).split(channels)
        inner = self.dy - of_ones.view(self.form) - apart * (self.scale ** 2 * of_apart).view(self.form)
        return inner * (self.scale * self.weight).view(self.form), gradients


for last in (False, True):
    for channels in map(int, sys.argv[2].split(",")):
        layer, times = Layer(channels, last), []
        for call in range(-calls // 10, calls):
            dist.barrier()
            began = time.perf_counter()
            y = layer.forward()
            dx, _ = layer.backward()
            if call >= 0:
                times.append(1e6 * (time.perf_counter() - began))
        assert abs(float(y.mean())) < 1e-3 and abs(float(dx.abs().max())) < 1e-3, "a constant gradient has none in x"
        slowest = torch.tensor([statistics.median(times)])
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            print(f"gloo {channels} {'NHWC' if last else 'NCHW'} {float(slowest):.1f}", flush=True)
dist.destroy_process_group()
