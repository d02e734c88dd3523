"""A scheduler, server or worker of MXNet's dist_sync, as DMLC_ROLE says. The first worker prints seconds a step: pslite_steps.py SIZE,SIZE,..."""
import sys
import time

import mxnet  # a scheduler or server stays in here until the job ends
from sizes import WARM_UP, parse, steps_of


def main():
    store = mxnet.kv.create("dist_sync")
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
        ends = {float(value[0].asscalar()), float(value[-1].asscalar())}
        if ends != {store.num_workers}:
            print(f"wrong: {ends} in place of {store.num_workers}", flush=True)
        if store.rank == 0:
            print(f"step ps-lite {size} {took}", flush=True)


main()
