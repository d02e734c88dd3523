#!/usr/bin/env python3
"""As digits_trainer.py, with a symbol and a Module. Each rank takes its share of every batch, so the run is the same whatever the
number of ranks.

    aiaccrun -np 4 python3 digits_module.py --data digits.txt
    aiaccrun -np 4 python3 digits_module.py --data digits.txt --kvstore dist_sync_aiacc
"""
import mxnet as mx
import numpy as np

import aiacc.mxnet as hvd
from digits_data import Report, arguments, batches, images, split


def symbol():
    made = mx.sym.Variable("data")
    # Without ReLU and maxima: where a gradient jumps, a difference in the last bit can change the third digit of the loss.
    for i, (filters, stride) in enumerate(((16, 1), (32, 2))):
        made = mx.sym.Convolution(made, kernel=(3, 3), stride=(stride, stride), pad=(1, 1), num_filter=filters, name=f"conv{i}")
        made = mx.sym.Activation(made, act_type="tanh")
    made = mx.sym.Activation(mx.sym.FullyConnected(mx.sym.Flatten(made), num_hidden=64, name="full0"), act_type="tanh")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(made, num_hidden=10, name="full1"), name="softmax")


def main():
    options = arguments(__doc__, kvstore={"help": "a KVStore that sums the gradients; without: a DistributedOptimizer, as Horovod's users have it"})
    hvd.init()
    mx.random.seed(options.seed + hvd.rank())
    if options.batch % hvd.size():
        raise SystemExit(f"a batch of {options.batch} does not divide among {hvd.size()} ranks")
    x, y = images(options.data)
    train, test = split(len(x), options.seed)
    each = options.batch // hvd.size()

    module = mx.mod.Module(symbol())
    module.bind([("data", (each, 1, 8, 8))], [("softmax_label", (each,))])
    module.init_params(mx.init.Xavier())
    settings = {"learning_rate": options.lr, "momentum": 0.9, "rescale_grad": 1.0 / (options.batch if options.kvstore else each)}
    if options.kvstore:
        module.init_optimizer(kvstore=options.kvstore, optimizer="sgd", optimizer_params=settings)
    else:
        parameters, auxiliary = module.get_params()
        hvd.broadcast_parameters(parameters, root_rank=0)
        module.set_params(parameters, auxiliary)
        module.init_optimizer(kvstore=None, optimizer=hvd.DistributedOptimizer(mx.optimizer.create("sgd", **settings)))

    report = Report(hvd.rank(), options.result)
    for epoch in range(options.epochs):
        losses = []
        for batch in batches(train, options, epoch):
            mine = batch[hvd.rank()::hvd.size()]
            module.forward_backward(mx.io.DataBatch([mx.nd.array(x[mine])], [mx.nd.array(y[mine])]))
            chosen = module.get_outputs()[0].asnumpy()[np.arange(each), y[mine]]
            losses.append(-np.log(np.maximum(chosen, 1e-30)).mean())
            module.update()
        mean = hvd.allreduce(mx.nd.array([np.mean(losses)], dtype="float64"), name="loss").asscalar()
        right = 0
        for begin in range(0, len(test), each):  # every rank looks at all of them, in batches of the bound size
            mine = np.resize(test[begin:begin + each], each)
            module.forward(mx.io.DataBatch([mx.nd.array(x[mine])]), is_train=False)
            right += int((module.get_outputs()[0].asnumpy().argmax(1) == y[mine])[:len(test[begin:begin + each])].sum())
        report.epoch(epoch, mean, right / len(test))


if __name__ == "__main__":
    main()
