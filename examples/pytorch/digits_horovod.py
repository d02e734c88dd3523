#!/usr/bin/env python3
"""A small CNN learns handwritten digits on all ranks of a job, in Horovod's style: with Horovod, the import line is the only one
that differs. Each rank takes its share of every batch, so the run is the same whatever the number of ranks.

    aiaccrun -np 4 python3 digits_horovod.py --data digits.txt
"""
import time

import torch
import torch.nn.functional as F

import aiacc.torch as hvd
from digits_data import arguments, batches, images, network, split


def share(indices):
    """This rank's part of them."""
    return indices[hvd.rank()::hvd.size()]


def main():
    options = arguments(__doc__, compress_ratio="the share of gradients' elements that travels, by Deep Gradient Compression (not with Horovod)")
    hvd.init()
    torch.manual_seed(options.seed + hvd.rank())
    torch.set_num_threads(1)
    if options.batch % hvd.size():
        raise SystemExit(f"a batch of {options.batch} does not divide among {hvd.size()} ranks")
    x, y = images(options.data)
    train, test = split(len(x), options.seed)
    steps = len(train) // options.batch

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    compression = hvd.DGC(options.compress_ratio, warmup_epochs=4) if options.compress_ratio else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), compression=compression)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    lines = []
    for epoch in range(options.epochs):
        began, sum_of_losses = time.monotonic(), 0.0
        if options.compress_ratio:
            compression.warmup_compress_ratio(epoch)
        for batch in batches(train, options, epoch):
            mine = share(batch)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[mine]), y[mine])
            loss.backward()
            optimizer.step()
            sum_of_losses += loss.item()
        mean = hvd.allreduce(torch.tensor(sum_of_losses / steps, dtype=torch.float64), name="loss").item()
        with torch.no_grad():
            mine = share(test)
            right = (model(x[mine]).argmax(1) == y[mine]).sum()
        accuracy = hvd.allreduce(right, op=hvd.Sum, name="right").item() / len(test)
        if hvd.rank() == 0:
            speed = steps * options.batch / (time.monotonic() - began)
            print(f"epoch {epoch + 1:2}  loss {mean:.6f}  test accuracy {100 * accuracy:5.2f} %  {speed:7.0f} images/s", flush=True)
            lines.append(f"{mean:.9f} {accuracy:.6f}\n")
    if hvd.rank() == 0 and options.result:
        options.result.write_text("".join(lines))


if __name__ == "__main__":
    main()
