"""Ranks meet through a store of the caller's: one that this test serves over TCP, and torch's where torch is installed. Each rank
is a Python process that loads the library by itself."""
import contextlib
import os
import pathlib
import socketserver
import subprocess
import sys
import textwrap
import threading

import pytest

import namespace_hosts
from launcher_support import STAGE

FOREIGN = ("AIACC_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "TORCHELASTIC_")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
NO_HOSTS = namespace_hosts.unavailable()
TIMEOUT = 60

# What a rank does. `STORE` is the part that says put, get and wait.
RANK = '''
import ctypes as c, os, socket, struct, sys
lib = c.CDLL(sys.argv[1])
lib.aiacc_last_error.restype = c.c_char_p
PUT = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p, c.c_void_p, c.c_size_t)
GET = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p, c.c_void_p, c.c_size_t, c.POINTER(c.c_size_t), c.c_int64)
WAIT = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(c.c_char_p), c.c_size_t, c.c_int64)
class Store(c.Structure):
    _fields_ = [("size", c.c_size_t), ("arg", c.c_void_p), ("put", PUT), ("get", GET), ("wait", WAIT)]
class Init(c.Structure):
    _fields_ = [("size", c.c_size_t), ("set", c.c_int32), ("rank", c.c_int32), ("world", c.c_int32), ("timeout", c.c_int32),
                ("store", c.POINTER(Store)), ("job", c.c_char_p)]
rank, world, where = int(sys.argv[2]), int(sys.argv[3]), (sys.argv[4], int(sys.argv[5]))
@STORE@
def put(_, key, value, bytes_):
    return store_put(key, c.string_at(value, bytes_)) or 0
def get(_, key, value, capacity, bytes_, timeout):
    found = store_get(key, timeout)
    if found is None: return 5
    c.memmove(value, found, min(capacity, len(found)))
    bytes_[0] = len(found)
    return 0
def wait(_, keys, n, timeout):
    return 0 if store_wait([keys[i] for i in range(n)], timeout) else 7
def check(status):
    if status: sys.exit(f"rank {rank}: status {status}: {lib.aiacc_last_error().decode()}")
store = Store(c.sizeof(Store), None, PUT(put), GET(get), WAIT(wait))
attr = Init(c.sizeof(Init), 1, rank, world, 50000, c.pointer(store), sys.argv[6].encode())
check(lib.aiacc_init(c.byref(attr)))
data = (c.c_float * 1000)(*([rank + 1.0] * 1000))
check(lib.aiacc_allreduce(data, data, c.c_size_t(1000), @FLOAT32@, @SUM@, c.c_uint64(1), None, None))
assert data[0] == data[999] == world * (world + 1) / 2, data[0]
check(lib.aiacc_finalize())
print(f"rank {rank} of {world} done")
'''

# The protocol of SmallStore below: a letter, lengths, bytes.
SMALL_STORE = '''
def ask(letter, key, value, timeout):
    with socket.create_connection(where) as link:
        link.sendall(letter + struct.pack("<IIq", len(key), len(value), timeout) + key + value)
        link.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: link.recv(65536), b""))
    return answer[1:] if answer[:1] == b"+" else None
def store_put(key, value): return 0 if ask(b"P", key, value, 0) is not None else 3
def store_get(key, timeout): return ask(b"G", key, b"", timeout)
def store_wait(keys, timeout): return all(ask(b"G", key, b"", timeout) is not None for key in keys)
'''

TORCH_STORE = '''
import datetime
from torch.distributed import TCPStore
torch_store = TCPStore(where[0], where[1], is_master=False, wait_for_workers=False)
def store_put(key, value): torch_store.set(key.decode(), value)
def span(timeout): return datetime.timedelta(milliseconds=timeout)
def store_wait(keys, timeout):
    try: torch_store.wait([key.decode() for key in keys], span(timeout))
    except Exception: return False
    return True
def store_get(key, timeout): return torch_store.get(key.decode()) if store_wait([key], timeout) else None
'''


class SmallStore(socketserver.ThreadingTCPServer):
    """put and get of keys, over TCP."""
    daemon_threads = True

    def __init__(self, address="127.0.0.1"):
        self.values = {}
        self.changed = threading.Condition()
        super().__init__((address, 0), Handler)

    def __enter__(self):
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        letter = self.rfile.read(1)
        key_bytes, value_bytes, timeout = int.from_bytes(self.rfile.read(4), "little"), int.from_bytes(self.rfile.read(4), "little"), \
            int.from_bytes(self.rfile.read(8), "little")
        key, value = self.rfile.read(key_bytes), self.rfile.read(value_bytes)
        store = self.server
        with store.changed:
            if letter == b"P":
                store.values[key] = value
                store.changed.notify_all()
            elif not store.changed.wait_for(lambda: key in store.values, timeout / 1000):
                return
            self.wfile.write(b"+" + (store.values[key] if letter == b"G" else b""))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    text = '#include <aiacc/aiacc.h>\n#include <stdio.h>\nint main(void) { printf("%d %d", AIACC_FLOAT32, AIACC_SUM); }\n'
    (folder / "numbers.c").write_text(text)
    subprocess.run(["cc", f"-I{STAGE}/include", folder / "numbers.c", "-o", folder / "numbers"], check=True)
    dtype, op = subprocess.run([folder / "numbers"], capture_output=True, text=True, check=True).stdout.split()

    def make(store):
        path = folder / "rank.py"
        path.write_text(RANK.replace("@STORE@", store).replace("@FLOAT32@", dtype).replace("@SUM@", op))
        return path
    return make


def start(program, rank, world, where, job="", before=(), python=sys.executable, **variables):
    words = [*before, python, program, STAGE / "lib/libaiacc.so", rank, world, where[0], where[1], job]
    return subprocess.Popen([str(word) for word in words], env={**CLEAN, **variables}, text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(processes):
    """[(code, standard output, standard error)]; none of them is left, also after a failure."""
    with contextlib.ExitStack() as stack:
        for process in processes:
            stack.callback(process.wait)
            stack.callback(process.kill)
        return [(lambda said: (process.returncode, *said))(process.communicate(timeout=TIMEOUT)) for process in processes]


def all_well(world):
    return [(0, f"rank {rank} of {world} done\n", "") for rank in range(world)]


def test_through_a_store_one_job_after_the_other(program):
    """The second job finds the first one's value, and is not led astray."""
    rank = program(SMALL_STORE)
    with SmallStore() as store:
        for _ in range(2):
            assert finish([start(rank, number, 3, store.server_address) for number in range(3)]) == all_well(3)
        assert list(store.values) == [b"aiacc//rendezvous"]


def test_two_jobs_share_a_store(program):
    rank = program(SMALL_STORE)
    with SmallStore() as store:
        processes = [start(rank, number, 2, store.server_address, job) for number in range(2) for job in ("a", "b")]
        assert [end[0] for end in finish(processes)] == [0] * 4
        assert sorted(store.values) == [b"aiacc/a/rendezvous", b"aiacc/b/rendezvous"]


@pytest.mark.skipif(NO_HOSTS is not None, reason=str(NO_HOSTS))
def test_over_hosts(program):
    """The store lies on the first host, so that all can reach it."""
    rank = program(SMALL_STORE)
    here = pathlib.Path(__file__)
    serve = textwrap.dedent(f"""
        import sys; sys.path.insert(0, {str(here.parent)!r})
        import {here.stem} as own
        with own.SmallStore("0.0.0.0") as store:
            print(store.server_address[1], flush=True); sys.stdin.read()
    """)
    with namespace_hosts.Hosts(2) as hosts:
        command = hosts.on("h0", ["env", f"AIACC_STAGE={STAGE}", f"AIACC_SOURCE={os.environ['AIACC_SOURCE']}", sys.executable, "-c", serve])
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            try:
                where = (hosts.address(0), int(server.stdout.readline()))
                places = ["h0", "h0", "h1", "h1"]
                ends = finish([start(rank, number, 4, where, before=[hosts.enter, place, "env", "AIACC_ENCRYPT=none"])
                               for number, place in enumerate(places)])
            finally:
                server.stdin.close()
                server.kill()
    assert ends == all_well(4)


def test_a_store_that_fails_is_named(program):
    with SmallStore() as store:
        rank = program(SMALL_STORE.replace('ask(b"P", key, value, 0)', "None"))
        (code, _, err), = finish([start(rank, 0, 2, store.server_address)])
        assert code == 1 and "status 6" in err and "the store's put of the key 'aiacc//rendezvous' (" in err and "returned 3" in err
        rank = program(SMALL_STORE.replace("def store_wait(keys, timeout): return all", "def store_wait(keys, timeout): return not all"))
        store.values[b"aiacc//rendezvous"] = b"x"
        (code, _, err), = finish([start(rank, 1, 2, store.server_address)])
        assert code == 1 and "status 7" in err and "the store's wait for the key 'aiacc//rendezvous' returned 7" in err
        (code, _, err), = finish([start(program(SMALL_STORE), 1, 2, store.server_address)])
        assert code == 1 and "status 11" in err, "what stands there is not aiacc's"


def test_through_torchs_store(program):
    """TORCH_PYTHON is an interpreter that has torch."""
    python = os.environ.get("TORCH_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import torch.distributed"], capture_output=True).returncode != 0:
        pytest.skip(f"{python} has no torch; TORCH_PYTHON may name one that has")
    serve = "import sys, torch.distributed as d; s = d.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False); " \
            "print(s.port, flush=True); sys.stdin.read()"
    with subprocess.Popen([python, "-c", serve], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            where = ("127.0.0.1", int(server.stdout.readline()))
            rank = program(TORCH_STORE)
            assert finish([start(rank, number, 2, where, python=python) for number in range(2)]) == all_well(2)
        finally:
            server.stdin.close()
            server.kill()
