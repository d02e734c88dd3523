#!/usr/bin/env python3
"""ArcFace: a CNN whose batch normalisation is over all ranks embeds handwritten digits, and a classifier whose classes are split over
the ranks (as for millions of faces; here there are ten) teaches it. The loss is that of the whole batch on every rank.

    aiaccrun -np 4 python3 digits_arcface.py --data digits.txt
"""
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import aiacc.mxnet as hvd
from digits_data import Report, arguments, batches, images, split


def network():
    made = gluon.nn.HybridSequential(prefix="embedding_")
    with made.name_scope():
        made.add(gluon.nn.Conv2D(16, 3, strides=2, padding=1, use_bias=False), hvd.SyncBatchNorm(), gluon.nn.Activation("tanh"),
                 gluon.nn.Flatten(), gluon.nn.Dense(32))
    return made


def main():
    options = arguments(__doc__)
    hvd.init()
    mx.random.seed(options.seed + hvd.rank())
    if options.batch % hvd.size():
        raise SystemExit(f"a batch of {options.batch} does not divide among {hvd.size()} ranks")
    x, y = images(options.data)
    train, test = split(len(x), options.seed)
    classes = 10

    model = network()
    model.initialize(mx.init.Xavier())
    model.hybridize()
    model(mx.nd.zeros((1, 1, 8, 8)))
    hvd.broadcast_parameters(model.collect_params(), root_rank=0)
    head = hvd.ShardedSoftmax(32, classes, margin="arc", margin_size=0.2, scale=16.0)
    head.initialize()
    centres = np.random.RandomState(options.seed).randn(classes, 32)  # the same, whatever the number of ranks
    head.weight.set_data(mx.nd.array(centres[head.first_class:head.first_class + head.classes]))
    settings = {"learning_rate": options.lr, "momentum": 0.9}
    trainer = hvd.DistributedTrainer(model.collect_params(), "sgd", settings)
    trainer_of_head = gluon.Trainer(head.collect_params(), "sgd", settings, kvstore=None)

    report = Report(hvd.rank(), options.result)
    for epoch in range(options.epochs):
        losses = []
        for batch in batches(train, options, epoch):
            mine = batch[hvd.rank()::hvd.size()]
            with autograd.record():
                loss = head(model(mx.nd.array(x[mine])), mx.nd.array(y[mine]))
            loss.backward()
            trainer.step(1)
            trainer_of_head.step(1)
            losses.append(loss.asscalar())
        weight = hvd.allgather(head.weight.data())
        cosines = mx.nd.dot(model(mx.nd.array(x[test])), mx.nd.L2Normalization(weight), transpose_b=True)
        report.epoch(epoch, np.mean(losses), np.mean(cosines.argmax(1).asnumpy() == y[test]))


if __name__ == "__main__":
    main()
