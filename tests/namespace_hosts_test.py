"""The hosts on which other tests run: they share nothing but their network, and nothing of them outlives their maker."""
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import namespace_hosts
from namespace_hosts import Hosts

pytestmark = pytest.mark.skipif(bool(namespace_hosts.unavailable()), reason=str(namespace_hosts.unavailable()))


def said(command):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_hosts_share_nothing_but_their_network():
    with Hosts(2) as hosts:
        for kind in ("net", "uts", "ipc", "mnt", "pid"):
            spaces = {said(hosts.on(name, ["readlink", f"/proc/self/ns/{kind}"])) for name in hosts.names}
            assert len({*spaces, os.readlink(f"/proc/self/ns/{kind}") + "\n"}) == 3, kind
        assert [said(hosts.on(name, ["hostname"])) for name in hosts.names] == ["h0\n", "h1\n"]
        said(hosts.on("h0", ["touch", "/dev/shm/mine"]))
        assert said(hosts.on("h1", ["ls", "/dev/shm"])) == ""
        assert set(said(hosts.on("h0", ["ls", "/sys/class/net"])).split()) == {"lo", "eth0"}
        server = subprocess.Popen(hosts.on("h1", [sys.executable, "-c", "import socket\n"
                                                  "s = socket.create_server(('::', 7), family=socket.AF_INET6, dualstack_ipv6=True)\n"
                                                  "print('up', flush=True)\n"
                                                  "for _ in range(2): s.accept()[0].sendall(b'hi')"]),
                                  stdout=subprocess.PIPE)
        server.stdout.readline()
        for address in (hosts.address(1), hosts.address(1, 6)):
            assert said(hosts.on("h0", [sys.executable, "-c", "import socket; "
                                        f"print(socket.create_connection(('{address}', 7)).recv(9))"])) == "b'hi'\n"
        assert server.wait(60) == 0
        server.stdout.close()


def test_a_login_has_a_clean_environment():
    with Hosts(1) as hosts:
        seen = subprocess.run(hosts.on("h0", ["env"]), env={**os.environ, "AIACC_LOG": "info", "TEST_JOB_MARK": "m"},
                              capture_output=True, text=True, check=True).stdout
        assert "AIACC_LOG" not in seen and "TEST_JOB_MARK=m" in seen


def test_hosts_end_with_their_maker_also_when_it_is_killed(tmp_path):
    source = pathlib.Path(namespace_hosts.__file__)
    maker = subprocess.Popen([sys.executable, source, "2", "--", "sh", "-c",
                              "$ENTER_HOST h0 readlink /proc/self/ns/pid; $ENTER_HOST h1 sleep 1000"],
                             stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    space = maker.stdout.readline().strip()
    assert members(space)
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    maker.stdout.close()
    until = time.monotonic() + 50
    while members(space) and time.monotonic() < until:
        time.sleep(0.01)
    assert not members(space)


def members(space):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{entry}/ns/pid") == space:
                found.append(int(entry))
        except OSError:
            pass
    return found
