"""All ranks send to rank 0 at once, which has posted a receive from each. Arguments: bytes of a message, rounds. Rank 0 prints bytes a second."""
import sys
import time

import aiacc


def run_round(messages):
    if aiacc.rank() > 0:
        aiacc.WORLD.send(messages[0], 0)
    else:
        aiacc.wait_all([aiacc.WORLD.recv(message, 1 + i, wait=False) for i, message in enumerate(messages)])


aiacc.init()
size, rounds = map(int, sys.argv[1:])
here = [bytearray([aiacc.rank()]) * size] if aiacc.rank() > 0 else [bytearray(size) for _ in range(1, aiacc.size())]
run_round(here)
aiacc.WORLD.barrier()
began = time.monotonic()
for _ in range(rounds):
    run_round(here)
if aiacc.rank() == 0:
    print(rounds * size * (aiacc.size() - 1) / (time.monotonic() - began))
    assert all(message == bytearray([1 + i]) * size for i, message in enumerate(here))
aiacc.finalize()
