#!/usr/bin/env python3
"""A small CNN learns handwritten digits on all ranks of a job, in Horovod's style: with Horovod, the import line is the only one
that differs. Each rank takes its share of every batch, so the run is the same whatever the number of ranks.

    aiaccrun -np 4 python3 digits_horovod.py --data digits.txt
"""
import argparse
import pathlib
import time

import torch
import torch.nn.functional as F

import aiacc.torch as hvd


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "digits/digits.txt", help="the images")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64, help="images of a step, over all ranks")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--result", type=pathlib.Path, help="a file for loss and accuracy of each epoch")
    return parser.parse_args()


def images(path):
    """Pixels from 0 to 1, and digits: a line is 64 characters 0 to g and the digit."""
    lines = [line.split() for line in path.read_text().splitlines()]
    pixels = torch.tensor([[int(character, 17) for character in line[0]] for line in lines], dtype=torch.float32)
    return (pixels / 16).reshape(-1, 1, 8, 8), torch.tensor([int(line[1]) for line in lines])


def network():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(32 * 4 * 4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def share(indices):
    """This rank's part of them."""
    return indices[hvd.rank()::hvd.size()]


def main():
    options = arguments()
    hvd.init()
    torch.manual_seed(options.seed + hvd.rank())
    torch.set_num_threads(1)
    if options.batch % hvd.size():
        raise SystemExit(f"a batch of {options.batch} does not divide among {hvd.size()} ranks")
    x, y = images(options.data)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(options.seed))
    train, test = order[:len(x) * 4 // 5], order[len(x) * 4 // 5:]
    steps = len(train) // options.batch

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    lines = []
    for epoch in range(options.epochs):
        began, sum_of_losses = time.monotonic(), 0.0
        shuffled = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(options.seed + epoch))]
        for step in range(steps):
            mine = share(shuffled[step * options.batch:(step + 1) * options.batch])
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
