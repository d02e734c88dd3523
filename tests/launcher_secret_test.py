"""Where the secret of a job over hosts is, and where it is not: never in an argument or an environment, no longer in aiaccrun
once the agents have it unless the job may grow, and then, as in an agent, only in memory that no core dump has."""
import ast
import os
import pathlib

import pytest

from launcher_hosts_support import PRETEND, RELAY, script
from launcher_support import Job

HELLO = ["/usr/bin/python3", pathlib.Path(os.environ["AIACC_SOURCE"], "tests/programs/say_hello.py")]


# What is larger is the shadow memory of a sanitizer: terabytes in which a byte stands for eight of the program's.
LARGEST = 1 << 30


def mappings(pid):
    """(first, last, flags) of the writable ones."""
    found = []
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if words[0] == "VmFlags:":
            if "w" in found[-1][1]:
                found[-1] = (*found[-1][0], words[1:])
            else:
                found.pop()
        elif "-" in words[0] and not words[0].endswith(":"):
            found.append((tuple(int(end, 16) for end in words[0].split("-")), words[1]))
    return found


def places(pid, needle):
    """Flags of the mappings of a process that have these bytes."""
    found = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for first, last, flags in mappings(pid):
            if last - first > LARGEST:
                continue
            memory.seek(first)
            try:
                if needle in memory.read(last - first):
                    found.append(flags)
            except OSError:
                pass  # [vvar] and its like
    return found


@pytest.fixture
def job():
    running = Job([*PRETEND, RELAY, "-H", "a,b", *HELLO, "stay"])
    yield running
    running.clean()


def test_the_secret_stays_where_it_must(job):
    told = [ast.literal_eval(job.process.stdout.readline().decode().removeprefix("welcome ")) for _ in range(2)]
    secret = bytes.fromhex(told[0]["secret"])
    assert len(secret) == 32 and len(set(secret)) > 8 and told[1]["secret"] == told[0]["secret"]

    for pid in job.processes():
        for file in ("cmdline", "environ"):
            content = pathlib.Path(f"/proc/{pid}/{file}").read_bytes()
            assert secret not in content and secret.hex().encode() not in content

    # Its ranks print it in this test, as text.
    assert places(job.process.pid, secret) == [], "aiaccrun has handed it on"
    for keeper in job.pids("aiacc-keeper"):
        assert places(keeper, secret) == []
    agents = job.pids("aiacc-agent")
    assert len(agents) == 2
    for agent in agents:
        found = places(agent, secret)
        assert found, "it is there for the next program of its ranks"
        assert all("dd" in flags for flags in found), found


def test_a_job_that_may_grow_keeps_it_for_other_hosts_where_no_dump_has_it():
    job = Job(["--min-np", 2, "--max-np", 3, "--host-discovery-script", script("list-secret", "echo a; echo b\n"), *PRETEND, RELAY, *HELLO, "stay"])
    try:
        told = ast.literal_eval(job.process.stdout.readline().decode().removeprefix("welcome "))
        found = places(job.process.pid, bytes.fromhex(told["secret"]))
        assert found and all("dd" in flags for flags in found), found
    finally:
        job.clean()
