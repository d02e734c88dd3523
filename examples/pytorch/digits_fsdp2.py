#!/usr/bin/env python3
"""A small CNN learns handwritten digits on all ranks of a job, with FSDP2 (torch 2.6 or newer): each rank has a part of every parameter
and of the optimizer's state. Each takes its share of every batch, so the run is the same whatever the number of ranks.

    aiaccrun -np 4 python3 digits_fsdp2.py --data digits.txt
    torchrun --standalone --nproc-per-node 4 digits_fsdp2.py --data digits.txt
"""
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import aiacc.torch  # noqa: F401: not needed with torch 2.5 or later, where the package was installed by pip
from digits_data import arguments, batches, images, network, split


def share(indices):
    """This rank's part of them."""
    return indices[dist.get_rank()::dist.get_world_size()]


def summed(value):
    """Over all ranks."""
    total = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(total)
    return total.item()


def main():
    options = arguments(__doc__)
    torch.set_num_threads(1)
    dist.init_process_group("aiacc")
    size = dist.get_world_size()
    torch.manual_seed(options.seed)
    if options.batch % size:
        raise SystemExit(f"a batch of {options.batch} does not divide among {size} ranks")
    x, y = images(options.data)
    train, test = split(len(x), options.seed)
    steps = len(train) // options.batch

    mesh = init_device_mesh("cpu", (size,))
    model = network()  # the same on all ranks: they have one seed
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)

    lines = []
    for epoch in range(options.epochs):
        began, sum_of_losses = time.monotonic(), 0.0
        for batch in batches(train, options, epoch):
            mine = share(batch)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[mine]), y[mine])
            loss.backward()
            optimizer.step()
            sum_of_losses += loss.item()
        mean = summed(sum_of_losses / steps) / size
        with torch.no_grad():
            mine = share(test)
            right = (model(x[mine]).argmax(1) == y[mine]).sum().item()
        accuracy = summed(right) / len(test)
        if dist.get_rank() == 0:
            speed = steps * options.batch / (time.monotonic() - began)
            print(f"epoch {epoch + 1:2}  loss {mean:.6f}  test accuracy {100 * accuracy:5.2f} %  {speed:7.0f} images/s", flush=True)
            lines.append(f"{mean:.9f} {accuracy:.6f}\n")
    if dist.get_rank() == 0 and options.result:
        options.result.write_text("".join(lines))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
