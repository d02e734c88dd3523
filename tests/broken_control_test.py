"""Ranks that met at a place lose their connection to rank 0 in mid-job: it goes on, and deaths are told as before."""
import contextlib
import os
import pathlib
import subprocess
import sys

import pytest

import namespace_hosts
from rendezvous_test import TIMEOUT, Ranks, by_hand, make_secret
from unauthenticated_test import listening

NO_HOSTS = namespace_hosts.unavailable()
pytestmark = pytest.mark.skipif(NO_HOSTS is not None, reason=str(NO_HOSTS))
PROXY = pathlib.Path(os.environ["AIACC_SOURCE"]) / "tests/programs/breaking_proxy.py"
PLACE, BEFORE_IT = 4242, 4300


@pytest.fixture
def secret(tmp_path):
    return make_secret(tmp_path / "job.secret")


@contextlib.contextmanager
def proxy(hosts):
    """On rank 0's host; calling it breaks what goes through it and returns how many connections that were."""
    command = hosts.on("h0", [sys.executable, PROXY, BEFORE_IT, f"{hosts.address(0)}:{PLACE}"])
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def break_all():
        process.stdin.write("break\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    try:
        assert process.stdout.readline() == "listening\n"
        yield break_all
    finally:
        try:
            process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()


def start(hosts, started, number, port, secret, program, host=None):
    words = by_hand(number, 3, AIACC_RENDEZVOUS=f"{hosts.address(0)}:{port}", AIACC_SECRET_FILE=secret, AIACC_INIT_TIMEOUT="50s")
    started.start(hosts.on(host or f"h{number}", ["env", *(f"{name}={value}" for name, value in words.items()), *program]))


def start_all(hosts, started, secret, program, host=None):
    """One on each host, or all on the same. Returns when all have met: then rank 0 closes the place."""
    def waits():
        assert started.processes[0].poll() is None
        return PLACE in listening(hosts.pids["h0"])
    start(hosts, started, 0, PLACE, secret, program, host)
    while not waits():
        pass
    for number in (1, 2):
        start(hosts, started, number, BEFORE_IT, secret, program, host)
    while waits():
        pass


def test_the_job_goes_on(hosts, rank, secret, tmp_path):
    over = tmp_path / "over"
    with proxy(hosts) as break_all, Ranks() as started:
        start_all(hosts, started, secret, [rank, "until", over])
        assert break_all() == 2
        over.touch()
        assert started.finish() == [(0, "")] * 3


def calls_of(pid, ports):
    """How many connections stand that were made to these ports, in the network of a process."""
    lines = [line.split()[1:4] for table in ("tcp", "tcp6")
             for line in pathlib.Path(f"/proc/{pid}/net", table).read_text().splitlines()[1:]]
    return sum(state == "01" and int(local.rsplit(":", 1)[1], 16) in ports for local, _, state in lines)


def test_ranks_of_rank_0s_host_come_back(hosts, rank, secret, tmp_path):
    over = tmp_path / "over"
    with proxy(hosts) as break_all, Ranks() as started:
        start_all(hosts, started, secret, [rank, "until", over], "h0")
        back = listening(hosts.pids["h0"]) - {BEFORE_IT}
        assert break_all() == 2
        while calls_of(hosts.pids["h0"], back) < 2:
            assert started.processes[0].poll() is None, started.finish()
        over.touch()
        assert started.finish() == [(0, "")] * 3


def test_a_death_after_the_break_is_told(hosts, rank, secret, tmp_path):
    with proxy(hosts) as break_all, Ranks() as started:
        start_all(hosts, started, secret, [rank, "death", "kill", tmp_path / "broken"])
        assert break_all() == 2
        (tmp_path / "broken").touch()
        ends = started.finish()
    assert ends[1][0] in (-9, 137), ends
    for number in (0, 2):
        code, err = ends[number]
        assert code == 0 and f"survivor {number}: peer failed, rank 1: " in err, err
        assert "rank 1 (h1, " in err and f"nobody listens at tcp:{hosts.address(1)}:" in err, "rank 0 has told it"


def test_a_death_after_the_break_is_told_on_the_same_host(hosts, rank, secret, tmp_path):
    with proxy(hosts) as break_all, Ranks() as started:
        start_all(hosts, started, secret, [rank, "death", "kill", tmp_path / "broken"], "h0")
        assert break_all() == 2
        (tmp_path / "broken").touch()
        ends = started.finish()
    assert ends[1][0] in (-9, 137), ends
    for number in (0, 2):
        code, err = ends[number]
        assert code == 0 and f"survivor {number}: peer failed, rank 1: rank 1 on host h0 ended without leaving the job: " in err, err


UNAUTHENTICATED = """import socket, sys, threading
door = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
callers = []

def answer():
    while True:
        callers.append(door.accept()[0])
        callers[-1].sendall(b"220 at your service\\r\\n")

threading.Thread(target=answer, daemon=True).start()
print("listening", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def unauthenticated(hosts, host, port):
    """Says the same to whoever calls the port."""
    process = subprocess.Popen(hosts.on(host, [sys.executable, "-c", UNAUTHENTICATED, port]), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "listening\n"
        yield
    finally:
        try:
            process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()


def test_an_unauthenticated_peer_at_a_dead_ranks_port_is_not_it(hosts, rank, secret, tmp_path):
    goes_on = tmp_path / "rank 0 goes on"
    with Ranks() as started:
        for number in range(3):
            start(hosts, started, number, PLACE, secret, [rank, "absent", goes_on])
        victim = started.processes[1].stdout.readline().strip()
        [port] = listening(hosts.pids["h1"])
        subprocess.run(hosts.on("h1", ["kill", "-KILL", victim]), check=True)
        started.processes[1].wait(TIMEOUT)
        with unauthenticated(hosts, "h1", port):
            goes_on.touch()
            ends = started.finish()
    for number in (0, 2):
        code, err = ends[number]
        assert code == 0 and f"survivor {number}: peer failed, rank 1: rank 1 (h1, " in err, err
        assert f"an unauthenticated peer listens at tcp:{hosts.address(1)}:{port} now: " in err, err
