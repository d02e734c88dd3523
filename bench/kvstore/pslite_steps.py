"""A scheduler, server or worker of MXNet's dist_sync, as DMLC_ROLE says. The first worker prints seconds a step: pslite_steps.py SIZE,SIZE,... SETTING"""
import sys
import time

import mxnet  # a scheduler or server stays in here until the job ends
from sizes import MOMENTUM, RATE, THRESHOLD, WARM_UP, expected, is_wrong, parse, steps_of


def main():
    store, setting = mxnet.kv.create("dist_sync"), sys.argv[2]
    if setting == "2bit":
        store.set_gradient_compression({"type": "2bit", "threshold": THRESHOLD})
    if setting == "sgd":
        store.set_optimizer(mxnet.optimizer.SGD(learning_rate=RATE, momentum=MOMENTUM, wd=0.0))
    for size in [parse(text) for text in sys.argv[1].split(",")]:
        gradient, value = mxnet.nd.zeros(size // 4), mxnet.nd.zeros(size // 4)
        store.init(size, value)

        def step(key=size, gradient=gradient, value=value):
            store.push(key, gradient)
            store.pull(key, value)
            value.wait_to_read()
        for _ in range(WARM_UP):
            step()
        began = time.perf_counter()
        for _ in range(steps_of(size)):
            step()
        took = (time.perf_counter() - began) / steps_of(size)
        gradient[:] = 1  # a pull writes into what was pushed too
        step()
        ends, want = (float(value[0].asscalar()), float(value[-1].asscalar())), expected(setting, store.num_workers, 1)
        if any(is_wrong(end, want) for end in ends):
            print(f"wrong: {ends} in place of {want}", flush=True)
        if store.rank == 0:
            print(f"step ps-lite {size} {took}", flush=True)


main()
