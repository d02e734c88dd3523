#!/usr/bin/env python3
"""A small CNN learns handwritten digits on all ranks of a job, by MXNet's gluon in Horovod's style: with Horovod, the import line is
the only one that differs. Each rank takes its share of every batch, so the run is the same whatever the number of ranks.

    aiaccrun -np 4 python3 digits_trainer.py --data digits.txt
"""
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import aiacc.mxnet as hvd
from digits_data import Report, arguments, batches, images, split


def network():
    # Without ReLU and maxima: where a gradient jumps, a difference in the last bit can change the third digit of the loss.
    made = gluon.nn.HybridSequential()
    made.add(gluon.nn.Conv2D(16, 3, padding=1, activation="tanh"), gluon.nn.Conv2D(32, 3, strides=2, padding=1, activation="tanh"),
             gluon.nn.Flatten(), gluon.nn.Dense(64, activation="tanh"), gluon.nn.Dense(10))
    return made


def share(indices):
    """This rank's part of them."""
    return indices[hvd.rank()::hvd.size()]


def main():
    options = arguments(__doc__)
    hvd.init()
    mx.random.seed(options.seed + hvd.rank())
    if options.batch % hvd.size():
        raise SystemExit(f"a batch of {options.batch} does not divide among {hvd.size()} ranks")
    x, y = images(options.data)
    train, test = split(len(x), options.seed)
    steps = len(train) // options.batch

    model = network()
    model.initialize(mx.init.Xavier())
    model.hybridize()
    model(mx.nd.zeros((1, 1, 8, 8)))  # the shapes of the parameters are known from here on
    hvd.broadcast_parameters(model.collect_params(), root_rank=0)
    trainer = hvd.DistributedTrainer(model.collect_params(), "sgd", {"learning_rate": options.lr, "momentum": 0.9})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    report = Report(hvd.rank(), options.result)
    for epoch in range(options.epochs):
        sum_of_losses = 0.0
        for batch in batches(train, options, epoch):
            mine = share(batch)
            with autograd.record():
                loss = loss_of(model(mx.nd.array(x[mine])), mx.nd.array(y[mine]))
            loss.backward()
            trainer.step(len(mine))
            sum_of_losses += float(loss.mean().asscalar())
        mean = hvd.allreduce(mx.nd.array([sum_of_losses / steps], dtype="float64"), name="loss").asscalar()
        mine = share(test)
        right = np.sum(model(mx.nd.array(x[mine])).argmax(1).asnumpy() == y[mine])
        accuracy = hvd.allreduce(mx.nd.array([right]), op=hvd.Sum, name="right").asscalar() / len(test)
        report.epoch(epoch, mean, accuracy)


if __name__ == "__main__":
    main()
