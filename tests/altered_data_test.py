"""Somebody on the path between two ranks alters a byte of a connection whose messages are protected: it is made anew, what was
not acknowledged is said again, and the job goes on to the right result."""
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
PLACE = 4244


class Proxy:
    """On h2, at the port of h0 that it leads to."""

    def __init__(self, hosts, port):
        self.process = subprocess.Popen(hosts.on("h2", [sys.executable, PROXY, port, f"{hosts.address(0)}:{port}"]),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        assert self.process.stdout.readline() == "listening\n"
        return self

    def ask(self, words):
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def __exit__(self, *_):
        try:
            self.process.communicate(timeout=TIMEOUT)
        finally:
            self.process.kill()


@contextlib.contextmanager
def no_way(hosts):
    """h0 does not reach h1 itself, so that the two speak by way of h2, which h1 calls."""
    routes = [["ip", "route", "add", "blackhole", f"{hosts.address(1)}/32"],
              ["ip", "-6", "route", "add", "blackhole", f"{hosts.address(1, 6)}/128"]]
    for route in routes:
        hosts.run(*hosts.on("h0", route))
    try:
        yield
    finally:
        for route in routes:
            hosts.run(*hosts.on("h0", ["del" if word == "add" else word for word in route]))


def start(hosts, started, number, at, program, **more):
    words = by_hand(number, 2, AIACC_RENDEZVOUS=f"{at}:{PLACE}", **more)
    started.start(hosts.on(f"h{number}", ["env", *(f"{name}={value}" for name, value in words.items()), *program]))


@pytest.mark.parametrize("protection", ["integrity", "data"])
def test_a_byte_that_is_altered_costs_a_connection(hosts, rank, tmp_path, protection):
    over = tmp_path / "over"
    settings = {"AIACC_ENCRYPT": protection, "AIACC_SECRET_FILE": make_secret(tmp_path / "job.secret"), "AIACC_PATH_TIMEOUT": "300s"}
    with no_way(hosts), Ranks() as started, contextlib.ExitStack() as stack:
        start(hosts, started, 0, hosts.address(0), [rank, "until", over], **settings)
        while PLACE not in (ports := listening(hosts.pids["h0"])) or len(ports) < 3:
            assert started.processes[0].poll() is None, started.finish()
        data = {port: stack.enter_context(Proxy(hosts, port)) for port in ports - {PLACE}}
        stack.enter_context(Proxy(hosts, PLACE))
        start(hosts, started, 1, hosts.address(2), [rank, "until", over], **settings)
        [way] = wait_for_one(started, data.values())
        for direction in ("there", "back"):
            before = way.ask(f"alter {direction}")
            while way.ask("taken") == before:
                assert [each.poll() for each in started.processes] == [None, None], started.finish()
        over.touch()
        assert started.finish() == [(0, "")] * 2


def wait_for_one(started, proxies):
    """Those that carry something: the one before rank 0's data port."""
    while not (used := [proxy for proxy in proxies if proxy.ask("taken") > 0]):
        assert [each.poll() for each in started.processes] == [None, None], started.finish()
    return used
