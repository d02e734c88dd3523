#!/usr/bin/env python3
"""The CNN of digits_horovod.py, by steps of each rank's own whose parameters are averaged every PERIOD-th step. With --outer-lr the averages are
steps of an optimizer with Nesterov's momentum, as in DiLoCo. With --gossip each rank exchanges with one other behind every so many steps in between.

    aiaccrun -np 4 python3 digits_local_sgd.py --data digits.txt --period 8
"""
import torch
import torch.nn.functional as F

import aiacc.torch as hvd
from digits_data import arguments, batches, images, network, split


def main():
    options = arguments(__doc__, period="steps from one average to the next (8)", warmup_steps="first steps, with gradients of all ranks (20)",
                        outer_lr="learning rate of an outer optimizer (0.7 is usual)", gossip="steps from one exchange with another rank to the next")
    hvd.init()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    x, y = images(options.data)
    train, test = split(len(x), options.seed)
    steps = len(train) // options.batch

    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    outer = None
    if options.outer_lr:
        def outer(parameters):
            return torch.optim.SGD(parameters, lr=options.outer_lr, momentum=0.9, nesterov=True)
    optimizer = hvd.LocalSGD(optimizer, options.period or 8, warmup_steps=20 if options.warmup_steps is None else options.warmup_steps, outer_optimizer=outer,
                             gossip=hvd.Gossip(int(options.gossip), nodes="ranks", compression=hvd.Compression.fp16) if options.gossip else None)

    lines = []
    for epoch in range(options.epochs):
        sum_of_losses = 0.0
        for batch in batches(train, options, epoch):
            mine = batch[hvd.rank()::hvd.size()]
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[mine]), y[mine])
            loss.backward()
            optimizer.step()
            sum_of_losses += loss.item()
        optimizer.average()  # so that all ranks test the same model
        mean = hvd.allreduce(torch.tensor(sum_of_losses / steps, dtype=torch.float64), name="loss").item()
        with torch.no_grad():
            mine = test[hvd.rank()::hvd.size()]
            right = (model(x[mine]).argmax(1) == y[mine]).sum()
        accuracy = hvd.allreduce(right, op=hvd.Sum, name="right").item() / len(test)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1:2}  loss {mean:.6f}  test accuracy {100 * accuracy:5.2f} %", flush=True)
            lines.append(f"{mean:.9f} {accuracy:.6f}\n")
    if hvd.rank() == 0 and options.result:
        options.result.write_text("".join(lines))


if __name__ == "__main__":
    main()
