"""Unauthenticated peers on the network of a job: they cost it a little and change nothing of its result, and one line counts them."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

import pytest

import namespace_hosts
from launcher_support import Job, closing_line
from rendezvous_test import TIMEOUT, Ranks, make_secret
from runtime_process_test import said

NO_HOSTS = namespace_hosts.unavailable()
pytestmark = pytest.mark.skipif(NO_HOSTS is not None, reason=str(NO_HOSTS))
SOURCE = pathlib.Path(os.environ["AIACC_SOURCE"])
UNAUTHENTICATED = [sys.executable, SOURCE / "tests/programs/unauthenticated_peer.py", SOURCE / "docs/wire-protocol.md"]
CHEAP = ["scan", "garbage", "http", "half", "huge", "replay", "other_job"]


def listening(pid):
    """TCP ports on which something listens in the network of a process."""
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net", table).read_text().splitlines()[1:]:
            _, local, _, state = line.split()[:4]
            if state == "0A":
                ports.add(int(local.rsplit(":", 1)[1], 16))
    return ports


def bother(hosts, address, port, *what):
    """How many connections unauthenticated peers on h2 made."""
    done = subprocess.run([*map(str, hosts.on("h2", [*UNAUTHENTICATED, address, port, *what]))], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


class Flood:
    """1,000 connections from h2 that say nothing and are renewed, until it is left; `made` is their number then."""

    def __init__(self, hosts, address, port):
        self.command = [str(word) for word in hosts.on("h2", ["sh", "-c", 'ulimit -n 4096; exec "$@"', "sh", *UNAUTHENTICATED, address, port, "flood"])]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.expect("flooding")
        return self

    def expect(self, line):
        """It is killed if it does not say so: a read from it then meets the end."""
        patience = threading.Timer(TIMEOUT, self.kill)
        patience.start()
        try:
            assert self.process.stdout.readline() == f"{line}\n"
        finally:
            patience.cancel()

    def kill(self):
        """With what it started on its host."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def wait_until_some_were_turned_away(self):
        """More than the 64 that may wait to prove themselves."""
        self.expect("65 were closed")

    def __exit__(self, *_):
        try:
            output = self.process.communicate("", timeout=TIMEOUT)[0]
            self.made = int((re.findall(r"^\d+$", output, re.M) or ["0"])[-1])  # a peer that died has not said it
        finally:
            self.kill()
            self.process.communicate()


def port_on(job, hosts, name):
    return job.wait_for(lambda: listening(hosts.pids[name]), f"a rank that listens on {name}").pop()


def launch(hosts, *arguments):
    return Job(["--launch-agent", hosts.enter, "-H", "h0:1,h1:1", *arguments])


def test_a_job_under_aiaccrun(hosts, rank, tmp_path):
    over = tmp_path / "over"
    job = launch(hosts, rank, "until", over)
    port = port_on(job, hosts, "h1")
    made = bother(hosts, hosts.address(1), port, *CHEAP[:4]) + bother(hosts, hosts.address(1, 6), port, *CHEAP[4:])
    assert made == len(CHEAP)
    over.touch()
    code, out, err = job.finish()
    assert (code, out) == (0, ""), err
    assert said(err) == f"aiaccrun: all ranks have ended; {made} unauthenticated peers were turned away on h1 [AR-STRANGERS]\n"


def test_a_job_that_fails_says_so_behind_its_failure(hosts, rank, tmp_path):
    job = launch(hosts, "sh", "-c", f'{rank} until {tmp_path / "over"} || exit 1; test $AIACC_RANK = 0 || exit 3')
    bother(hosts, hosts.address(1), port_on(job, hosts, "h1"), "garbage")
    (tmp_path / "over").touch()
    code, _, err = job.finish()
    assert code == 3 and re.search(r"exited with status 3.*; 1 unauthenticated peer was turned away on h1 ", closing_line(err)), err


def test_a_rank_that_lost_its_peer_has_told_of_them(hosts, rank, tmp_path):
    """It never finalizes. It ends by its own error, not by aiaccrun's signal."""
    job = launch(hosts, "sh", "-c", f"trap '' TERM; exec {rank} until {tmp_path / 'never'}")
    bother(hosts, hosts.address(1), port_on(job, hosts, "h1"), "garbage")
    [victim] = [pid for pid in job.pids("rank") if b"AIACC_RANK=0" in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")]
    os.kill(victim, signal.SIGKILL)
    code, _, err = job.finish()
    assert code == 137 and re.search(r"rank 0 .*was killed by signal 9.*; 1 unauthenticated peer was turned away on h1 ", closing_line(err)), err


def test_a_thousand_half_open_connections_all_through_a_launch(hosts, rank, tmp_path):
    """They are there before the first message between the hosts: rank 1 listens, and rank 0 has not begun."""
    go, over = tmp_path / "go", tmp_path / "over"
    wait = f"test $AIACC_RANK = 1 || until test -e {go}; do sleep 0.02; done; exec {rank} until {over}"
    job = launch(hosts, "sh", "-c", wait)
    with Flood(hosts, hosts.address(1), port_on(job, hosts, "h1")) as flood:
        go.touch()
        flood.wait_until_some_were_turned_away()
        over.touch()
        code, out, err = job.finish()
    assert (code, out) == (0, ""), err
    count = int(re.search(r"all ranks have ended; (\d+) unauthenticated peers were turned away on h1", closing_line(err))[1])
    print(f"{count} of {flood.made} were turned away before the job was over, in {job.took:.2f} s")
    assert 64 < count <= flood.made


@pytest.fixture
def secret(tmp_path):
    return make_secret(tmp_path / "job.secret")


def place(hosts):
    return f"{hosts.address(0)}:4243"


def rank_zero(hosts, started, program, size, secret):
    started.start(hosts.on("h0", ["env", "AIACC_RANK=0", f"AIACC_SIZE={size}", f"AIACC_RENDEZVOUS={place(hosts)}",
                                  f"AIACC_SECRET_FILE={secret}", "AIACC_INIT_TIMEOUT=50s", *program]))
    while 4243 not in listening(hosts.pids["h0"]):
        assert started.processes[0].poll() is None


def others(hosts, started, program, size, secret):
    for number in range(1, size):
        started.start(hosts.on("h1", ["env", f"AIACC_RANK={number}", f"AIACC_SIZE={size}", f"AIACC_RENDEZVOUS={place(hosts)}",
                                      f"AIACC_SECRET_FILE={secret}", "AIACC_INIT_TIMEOUT=50s", *program]))


def test_where_ranks_meet(hosts, rank, secret):
    """There an unauthenticated peer can say the right hello: the job has no number yet."""
    with Ranks() as started:
        rank_zero(hosts, started, [rank, "loop", 1], 3, secret)
        made = bother(hosts, hosts.address(0), 4243, *CHEAP, "wrong_secret", "reflect")
        others(hosts, started, [rank, "loop", 1], 3, secret)
        (code, err), *rest = started.finish()
    assert (code, rest) == (0, [(0, "")] * 2), err
    assert f"{made} unauthenticated peers were turned away at AIACC_RENDEZVOUS={place(hosts)}" in err


def test_a_thousand_half_open_connections_all_through_a_rendezvous(hosts, rank, secret):
    with Ranks() as started:
        rank_zero(hosts, started, [rank, "loop", 1], 4, secret)
        with Flood(hosts, hosts.address(0), 4243) as flood:
            flood.wait_until_some_were_turned_away()
            others(hosts, started, [rank, "loop", 1], 4, secret)
            (code, err), *rest = started.finish()
    assert (code, rest) == (0, [(0, "")] * 3), err
    count = int(re.search(r"(\d+) unauthenticated peers were turned away at", err)[1])
    print(f"{count} of {flood.made} were turned away before all had met")
    assert count > 64
