"""One rank of a sync aiacc.KVStore: the first SERVERS ranks serve, the others push and pull. Prints seconds a step, of the first worker:
aiacc_steps.py SERVERS SIZE,SIZE,... SETTING"""
import array
import sys
import time

import aiacc
from aiacc.kvstore import KVStore, Update
from sizes import MOMENTUM, RATE, THRESHOLD, WARM_UP, expected, is_wrong, parse, steps_of


def pushpull(store, key, gradient, value):
    store.pushpull(key, gradient, value)


def push_and_pull(store, key, gradient, value):
    aiacc.wait_all([store.push(key, gradient, wait=False), store.pull(key, value, wait=False)])


def main():
    servers, sizes, setting = int(sys.argv[1]), [parse(text) for text in sys.argv[2].split(",")], sys.argv[3]
    aiacc.init()
    workers = list(range(servers, aiacc.size()))
    store = KVStore(servers=list(range(servers)), workers=workers, replicas=2 if setting == "replicas" else 1)
    if setting == "sgd":
        store.set_optimizer(Update.SGD, rate=RATE, momentum=MOMENTUM)
    elif setting in ("fp16", "bf16", "2bit"):
        store.set_gradient_compression({"type": setting, "threshold": THRESHOLD})
    if store.rank >= 0:
        for size in sizes:
            for step in (pushpull, push_and_pull):
                key = f"{step.__name__} {size}"
                gradient, value = (array.array("f", [start]) * (size // 4) for start in (1.0, 0.0))
                store.init(key, value)
                for _ in range(WARM_UP):
                    step(store, key, gradient, value)
                began = time.perf_counter()
                for _ in range(steps_of(size)):
                    step(store, key, gradient, value)
                took = (time.perf_counter() - began) / steps_of(size)
                want = expected(setting, len(workers), WARM_UP + steps_of(size))
                if is_wrong(value[0], want) or is_wrong(value[-1], want):
                    print(f"wrong: {value[0]} and {value[-1]} in place of {want}", flush=True)
                if store.rank == 0:
                    print(f"step {step.__name__} {size} {took}", flush=True)
    store.free()
    aiacc.finalize()


main()
