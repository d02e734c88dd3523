"""A process of multiprocessing for each rank but one, which starts them: a job without aiaccrun. What it does, the number of ranks, and the
rank of the process that starts the others are words."""
import array
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import time

import aiacc

WHAT, SIZE, PARENT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
OTHERS = [rank for rank in range(SIZE) if rank != PARENT]
LONG = 1 << 20  # of floats: longer than what is copied at once


class Store:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def set(self, key, value):
        new = self.folder / f"new-{os.getpid()}"
        new.write_bytes(value)
        new.rename(self.folder / key.replace("/", "_"))

    def get(self, key):
        path = self.folder / key.replace("/", "_")
        while not path.exists():
            time.sleep(0.01)
        return path.read_bytes()


def start(rank, folder):
    aiacc.init(rank=rank, size=SIZE, store=Store(folder), timeout=60)
    data = array.array("f", [rank + 1.0])
    aiacc.WORLD.allreduce(data)
    assert data[0] == SIZE * (SIZE + 1) / 2, data


def payload(rank, count):
    return array.array("f", [float(rank * 7 + 1)]) * count


def send_to_parent(rank):
    for tag, count in enumerate((2, 10_000, LONG)):
        aiacc.WORLD.send(payload(rank, count), PARENT, tag)


def receive_from(rank):
    for tag, count in enumerate((2, 10_000, LONG)):
        got = array.array("f", [0.0]) * count
        aiacc.WORLD.recv(got, rank, tag)
        assert got == payload(rank, count), (rank, count)


def pair_of(rank):
    """The last two ranks but the one that leaves first."""
    return aiacc.WORLD.create([one for one in range(SIZE) if one != OTHERS[0]], timeout=60) if rank != OTHERS[0] else None


def works(group):
    data = array.array("f", [1.0]) * LONG
    group.allreduce(data)
    assert data[0] == data[-1] == group.size, data[0]
    group.barrier()


def child(rank, folder, go_on, worked):
    start(rank, folder)
    if WHAT == "sends":
        send_to_parent(rank)
    if WHAT == "finalize":
        aiacc.finalize()
    if WHAT in ("goes on", "is killed"):
        pair = pair_of(rank)
        if pair is not None:
            go_on.wait()
            works(pair)
            if WHAT == "is killed":
                worked.wait()  # the parent, too, has passed the barrier
                os.kill(os.getpid(), signal.SIGKILL)
            works(pair)


def main(folder):
    context = multiprocessing.get_context("spawn")
    go_on, worked = context.Event(), context.Event()
    processes = {rank: context.Process(target=child, args=(rank, folder, go_on, worked)) for rank in OTHERS}
    for process in processes.values():
        process.start()
    start(PARENT, folder)
    first = processes[OTHERS[0]]
    if WHAT in ("goes on", "is killed"):
        first.join()
        pair = pair_of(PARENT)
        go_on.set()
        works(pair)
        worked.set()
        try:
            works(pair)
            print("it worked again", flush=True)
        except aiacc.PeerFailed as error:
            print("lost", error.rank, flush=True)
    if WHAT == "calls":
        first.join()
        try:
            aiacc.WORLD.allreduce(array.array("f", [1.0]), timeout=60)
        except aiacc.Mismatch as error:
            print("mismatch", error.rank, str(error)[str(error).index("rank"):], flush=True)
    for process in processes.values():
        process.join()
    if WHAT == "sends":
        for rank in OTHERS:
            receive_from(rank)
    print([processes[rank].exitcode for rank in OTHERS], flush=True)
    if WHAT == "finalize":
        aiacc.finalize()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
