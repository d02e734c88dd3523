"""Latency beside bulk whose delay is limited, by default or by AIACC_TC_BULK=delay=..., over a switch with a deep queue."""
import json
import pathlib
import subprocess

import pytest

import namespace_hosts
from launcher_support import STAGE, Job
from python_support import ENVIRONMENT, SOURCE

NO_HOSTS = namespace_hosts.unavailable()
pytestmark = pytest.mark.skipif(NO_HOSTS is not None, reason=str(NO_HOSTS))
LINE = 12.5e6  # bytes a second
QUEUE_MS = 100


@pytest.fixture(scope="module")
def hosts():
    with namespace_hosts.Hosts(2, switch=(f"{LINE * 8 / 1e6:.0f}mbit", f"{QUEUE_MS}ms")) as made:
        yield made


def measure(hosts, bulk, transport):
    """What aiacc-perf says of both classes, by their names."""
    job = Job(["--launch-agent", hosts.enter, "-H", "h0:1,h1:1", "-x", f"AIACC_TC_BULK={bulk}", "-x", f"AIACC_TRANSPORT={transport}", STAGE / "bin/aiacc-perf", "--classes", "--json",
               "-b", "8K", "-e", "1M", "-n", "10"])
    code, out, err = job.finish(timeout=300)
    assert code == 0, err
    return {row["class"]: row for row in map(json.loads, out.splitlines()) if row["kind"] == "class"}


def skip_without(transport):
    report = json.loads(subprocess.run([STAGE / "bin/aiacc-info", "--json"], capture_output=True, check=True).stdout)
    way = next(way for way in report["transports"] if way["name"] == transport)
    if not way["available"]:
        pytest.skip(way["why"])


@pytest.mark.parametrize("transport, bulk", [("tcp", ""), ("tcp", "dscp=10,delay=2ms"), ("ofi", "delay=2ms")])
def test_latency_does_not_wait_for_the_switchs_queue(hosts, transport, bulk):
    """The bound is twice what a call takes alone and a chunk of 64 KiB; a real machine has ten times that."""
    skip_without(transport)
    check(measure(hosts, bulk, transport))


def check(rows):
    alone, beside, bulk = rows["latency"]["alone"], rows["latency"]["together"], rows["bulk"]
    bound = 2 * alone["p99_us"] + 65536 / LINE * 1e6
    share = 100 * (bulk["together"]["algbw_gbs"] + beside["algbw_gbs"]) / bulk["alone"]["algbw_gbs"]
    print(f"99 % of 8 KiB: {alone['p99_us']:.0f} us alone, {beside['p99_us']:.0f} beside bulk, bound {bound:.0f}; "
          f"both together have {share:.0f} % of what bulk has alone")
    assert beside["p99_us"] <= 10 * bound
    assert beside["p50_us"] <= QUEUE_MS * 1e3 / 2
    assert share >= 50
    assert bulk["wrong"] == 0


def test_latency_over_ucx_waits_less_than_without_a_delay(hosts):
    """By default; the same hosts, one job after the other."""
    skip_without("ucx")
    limited, unlimited = (measure(hosts, bulk, "ucx") for bulk in ("", "delay=none"))
    p50 = [rows["latency"]["together"]["p50_us"] for rows in (limited, unlimited)]
    print(f"median of 8 KiB beside bulk: {p50[0]:.0f} us, {p50[1]:.0f} without a delay")
    assert p50[0] < p50[1]
    check(limited)


def segments(hosts, field):
    """Of TCP, by all hosts: OutSegs or RetransSegs."""
    total = 0
    for pid in hosts.pids.values():
        names, values = (line.split() for line in pathlib.Path(f"/proc/{pid}/net/snmp").read_text().splitlines() if line.startswith("Tcp:"))
        total += int(values[names.index(field)])
    return total


def test_sixteen_that_send_to_one_lose_little(tmp_path):
    """The bounds are 85 % of the line, of which a loaded machine has less, and 0.1 % of the segments, of which it has ten times as many."""
    program = tmp_path / "incast.py"
    program.write_text((SOURCE / "tests/programs/incast.py").read_text())
    tmp_path.chmod(0o755)
    with namespace_hosts.Hosts(17, switch=(f"{LINE * 8 / 1e6:.0f}mbit", "20ms")) as many:
        words = [word for name, value in ENVIRONMENT.items() for word in ("-x", f"{name}={value}")]
        job = Job(["--launch-agent", many.enter, "-H", ",".join(f"{name}:1" for name in many.names), *words, "-x", "AIACC_TC_BULK=delay=2ms",
                   "/usr/bin/python3", program, 256 << 10, 2])
        code, out, err = job.finish(timeout=300)
        assert code == 0, err
        again, sent, goodput = segments(many, "RetransSegs"), segments(many, "OutSegs"), float(out)
    print(f"{100 * goodput / LINE:.0f} % of the line, {100 * again / sent:.2f} % of {sent} segments sent again")
    assert again <= 0.01 * sent
    assert goodput >= 0.3 * LINE
