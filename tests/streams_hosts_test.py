"""Ranks with several TCP connections for a pair of hosts, over a network that limits each connection (AIACC_TCP_STREAMS)."""
import time

import pytest

import namespace_hosts
from launcher_support import STAGE, Job

NO_HOSTS = namespace_hosts.unavailable()
pytestmark = pytest.mark.skipif(NO_HOSTS is not None, reason=str(NO_HOSTS))
PERF = STAGE / "bin/aiacc-perf"


@pytest.fixture(scope="module")
def capped():
    with namespace_hosts.Hosts(2, rate="400mbit", flow_rate="120mbit") as made:
        yield made


def on(hosts, streams, *arguments):
    return Job(["--launch-agent", hosts.enter, "-H", "h0:1,h1:1", "-x", f"AIACC_TCP_STREAMS={streams}", *arguments])


def connections(hosts):
    """Established TCP connections of h0 with h1. Those that h1 has made are in the table of IPv6."""
    process = hosts.pids["h0"]
    count = 0
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{process}/net/{table}", encoding="ascii") as file:
            for line in list(file)[1:]:
                _, here, there, state = line.split()[:4]
                count += state == "01" and here.split(":")[0] != there.split(":")[0]
    return count


def bytes_sent(hosts):
    """What h0 has sent over its port."""
    with open(f"/proc/{hosts.pids['h0']}/net/dev", encoding="ascii") as file:
        return next(int(line.split()[9]) for line in file if line.split()[0] == "eth0:")


def stop(job, hosts):
    """Ends the job, and waits until its connections are gone."""
    job.kill()
    end = time.monotonic() + 60
    while connections(hosts) > 0:
        assert time.monotonic() < end, f"{connections(hosts)} connections are left 60 s after the job was killed"
        time.sleep(0.01)


@pytest.mark.parametrize("streams", [1, 4, "auto", "2-8"])
def test_sums_are_right_whatever_the_number(capped, streams):
    code, _, err = on(capped, streams, PERF, "allreduce", "-b", "1M", "-e", "4M", "-f", "4", "-n", "3", "-w", "1", "--bound", "0").finish(timeout=300)
    assert code == 0, err


def test_more_connections_are_made_where_each_is_capped(capped):
    job = on(capped, "auto", PERF, "allreduce", "-b", "4M", "-e", "4M", "-n", "100000", "--bound", "0")
    job.wait_for(lambda: connections(capped) >= 3, "more than two connections between the hosts", timeout=300)
    stop(job, capped)


def test_one_connection_stays_where_messages_are_short(capped):
    before = bytes_sent(capped)
    job = on(capped, "auto", PERF, "allreduce", "-b", "4K", "-e", "4K", "-n", "1000000", "--bound", "0")
    # A rank that dials tries all addresses of its peer, each for as long as none has answered: there may be two connections at first.
    job.wait_for(lambda: bytes_sent(capped) - before > 4 << 20, "1,000 messages of 4 KiB", timeout=300)
    seen = set()
    for _ in range(100):
        seen.add(connections(capped))
        time.sleep(0.01)
    stop(job, capped)
    assert seen == {1}
