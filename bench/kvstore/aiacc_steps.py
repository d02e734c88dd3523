"""One rank of a sync aiacc.KVStore: the first SERVERS ranks serve, the others push and pull. Prints seconds a step, of the first worker:
aiacc_steps.py SERVERS SIZE,SIZE,..."""
import array
import sys
import time

import aiacc
from aiacc.kvstore import KVStore
from sizes import WARM_UP, parse, steps_of


def pushpull(store, key, gradient, value):
    store.pushpull(key, gradient, value)


def push_and_pull(store, key, gradient, value):
    aiacc.wait_all([store.push(key, gradient, wait=False), store.pull(key, value, wait=False)])


def main():
    servers, sizes = int(sys.argv[1]), [parse(text) for text in sys.argv[2].split(",")]
    aiacc.init()
    workers = list(range(servers, aiacc.size()))
    store = KVStore(servers=list(range(servers)), workers=workers)
    if store.rank >= 0:
        for size in sizes:
            gradient, value = (array.array("f", [start]) * (size // 4) for start in (1.0, 0.0))
            store.init(size, value)
            for step in (pushpull, push_and_pull):
                for _ in range(WARM_UP):
                    step(store, size, gradient, value)
                began = time.perf_counter()
                for _ in range(steps_of(size)):
                    step(store, size, gradient, value)
                took = (time.perf_counter() - began) / steps_of(size)
                if {value[0], value[-1]} != {len(workers)}:
                    print(f"wrong: {value[0]} and {value[-1]} in place of {len(workers)}", flush=True)
                if store.rank == 0:
                    print(f"step {step.__name__} {size} {took}", flush=True)
    store.free()
    aiacc.finalize()


main()
