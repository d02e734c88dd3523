"""Two ranks train with the values on two more, which have a replica of each other's: mxnet_replicas.py VICTIM OPTIMIZER FILE. Rank 0 kills
the server VICTIM while a step is under way; -1: none. Later the learning rate changes, and the state is saved to FILE and loaded. Each
rank that trains prints all that it has learned, bit by bit."""
import hashlib
import os
import signal
import sys

import mxnet as mx
import numpy as np

import aiacc.mxnet as hvd
from mxnet import autograd, gluon

VICTIM, OPTIMIZER, FILE = int(sys.argv[1]), sys.argv[2], sys.argv[3]
hvd.init()
pids = hvd.allgather_object(os.getpid())
store = mx.kv.create("dist_sync_aiacc") if os.environ.get("AIACC_KV_SERVERS") else hvd.create(servers=2, replicas=2)
# From here on only the ranks that train.
assert (store.rank, store.num_workers) == (hvd.rank(), 2) and store.process_set.ranks == [0, 1]
mx.random.seed(1)
model = gluon.nn.Sequential()
model.add(gluon.nn.Dense(200, activation="tanh", in_units=300), gluon.nn.Dense(50, activation="tanh", in_units=200), gluon.nn.Dense(10, in_units=50))
model.initialize(mx.init.Uniform(0.1))
settings = {"learning_rate": 0.05, "momentum": 0.9} if OPTIMIZER == "sgd" else {"learning_rate": 0.01}
trainer = gluon.Trainer(model.collect_params(), OPTIMIZER, settings, kvstore=store, update_on_kvstore=True)
loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
random = np.random.RandomState(store.rank)
losses = []
for step in range(14):
    if step == 8:
        trainer.set_learning_rate(trainer.learning_rate / 2)
    if step == 10:
        trainer.save_states(FILE)
    if step == 12:
        trainer.load_states(FILE)
    x, y = mx.nd.array(random.rand(16, 300)), mx.nd.array(random.randint(0, 10, 16))
    with autograd.record():
        loss = loss_of(model(x), y)
    loss.backward()
    trainer.step(32)
    if step in (5, 6) and store.rank == 0 and VICTIM >= 0:
        try:
            os.kill(pids[VICTIM], signal.SIGKILL)
        except ProcessLookupError:
            pass
    losses.append(float(loss.mean().asscalar()))
    summed = hvd.allreduce(mx.nd.ones((3,)), op=hvd.Sum, name="beside", process_set=store.process_set)
    assert summed.asnumpy().tolist() == [2.0] * 3
store.barrier()
learned = b"".join(parameter.data().asnumpy().tobytes() for parameter in model.collect_params().values())
print(hashlib.sha256(learned).hexdigest(), flush=True)
