"""Real ranks on hosts that share nothing but a network (tests/namespace_hosts.py): what runtime_process_test.py asks of one
host, and what only several have."""
import os
import pathlib
import re
import signal

import pytest

import namespace_hosts
from active_hosts_support import a_port_goes_down
from launcher_support import STAGE, TOLERANCE, Job, compiled, with_longer_limits
from runtime_process_test import said

NO_HOSTS = namespace_hosts.unavailable()
pytestmark = pytest.mark.skipif(NO_HOSTS is not None, reason=str(NO_HOSTS))
UNEVEN = "h0:2,h1:1,h2:2"
PLACEMENTS = ["h0:1,h1:1", "h0:2,h1:2", UNEVEN]
DIGITS = [STAGE / "bin/aiacc-digits", "--data", STAGE / "share/aiacc/digits.txt"]


@pytest.fixture(scope="module")
def disagree():
    return compiled("tests/programs/disagree.c")


@pytest.fixture(scope="module")
def outstanding():
    return compiled("tests/programs/outstanding.c")


def on(hosts, where, *arguments):
    return Job(["--launch-agent", hosts.enter, "-H", where, *arguments])


@pytest.mark.parametrize("order", ["slot", "node"])
@pytest.mark.parametrize("where", PLACEMENTS)
def test_sums_of_all_sizes(hosts, rank, where, order):
    code, out, err = on(hosts, where, "--map-by", order, rank, "loop", 2).finish()
    assert (code, out, said(err)) == (0, "", "")


@pytest.mark.parametrize("where", PLACEMENTS)
def test_ranks_that_leave_at_once_harm_nobody(hosts, rank, where):
    for _ in range(5):
        code, out, err = on(hosts, where, rank, "barrier").finish()
        assert (code, out, said(err)) == (0, "", "")


def test_the_digits_are_learned_as_on_one_host(hosts):
    losses = []
    for job in [Job(["-np", 5, *DIGITS, "--epochs", 3]), on(hosts, UNEVEN, *DIGITS, "--epochs", 3)]:
        code, out, err = job.finish()
        assert code == 0, err
        losses.append(float(re.search(r"final: loss ([\d.]+)", out)[1]))
    print(f"losses: {losses}")
    assert abs(losses[0] - losses[1]) < 1e-4 * losses[0]


# Says what decides how fast each of its connections to other hosts sends, and what this host is set to.
CONGESTION = f"""
import ctypes, os, pathlib, socket
library = ctypes.CDLL("{STAGE}/lib/libaiacc.so")
library.aiacc_barrier.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p]
world = 1  # AIACC_WORLD
assert library.aiacc_init(None) == 0 and library.aiacc_barrier(world, None, None) == 0
found = set()
for number in os.listdir("/proc/self/fd"):
    try:
        one = socket.socket(fileno=os.dup(int(number)))
        one.getpeername()
    except OSError:
        continue  # no socket, or a listener
    if one.family != socket.AF_UNIX:
        found.add(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode())
print(*found, pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(), flush=True)
assert library.aiacc_barrier(world, None, None) == 0 and library.aiacc_finalize() == 0
"""


@pytest.mark.parametrize("wanted", ["auto", "system", "reno"])
def test_connections_have_the_congestion_control_of_the_setting(hosts, wanted):
    code, out, err = on(hosts, "h0:1,h1:1", "-x", f"AIACC_TCP_CONGESTION={wanted}", "/usr/bin/python3", "-c",
                        CONGESTION).finish()
    assert code == 0, err
    for line in out.splitlines():
        found, host_is_set_to = line.split()  # one kind of connection a rank, with one control
        if wanted == "auto":
            assert not found.startswith("bbr") and (found == host_is_set_to or host_is_set_to.startswith("bbr"))
        else:
            assert found == (host_is_set_to if wanted == "system" else wanted)
    assert len(out.splitlines()) == 2, out


# Says its rank, and how many bytes came to this host in packets of two DSCPs while it had short calls, and a long one in the traffic
# class that its arguments name for its rank.
DSCPS = f"""
import collections, ctypes, os, socket, struct, sys
class Attr(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("timeout_ms", ctypes.c_int64), ("prescale", ctypes.c_double),
                ("postscale", ctypes.c_double), ("priority", ctypes.c_int32), ("traffic_class", ctypes.c_int32),
                ("callback", ctypes.c_void_p), ("callback_arg", ctypes.c_void_p), ("memory_kind", ctypes.c_int32)]
rank = int(os.environ["AIACC_RANK"])
attr = Attr(size=ctypes.sizeof(Attr), traffic_class=int(sys.argv[1 + rank]))
library = ctypes.CDLL("{STAGE}/lib/libaiacc.so")
pointer, number = ctypes.c_void_p, ctypes.c_uint64
library.aiacc_barrier.argtypes = [number, pointer, pointer]
library.aiacc_allreduce.argtypes = [pointer, pointer, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, number, pointer, pointer]
world, float32, total = 1, {{FLOAT32}}, {{SUM}}
wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
wire.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
wire.setblocking(False)
assert library.aiacc_init(None) == 0 and library.aiacc_barrier(world, None, None) == 0
floats = (ctypes.c_float * 1000000)()
for count in [1] * 100:
    assert library.aiacc_allreduce(floats, floats, count, float32, total, world, None, None) == 0
assert library.aiacc_allreduce(floats, floats, 1000000, float32, total, world, ctypes.byref(attr), None) == 0
assert library.aiacc_barrier(world, None, None) == 0
heard = collections.Counter()
while True:
    try:
        packet, (_, protocol, kind, *_) = wire.recvfrom(1 << 17)
    except BlockingIOError:
        break
    if kind == socket.PACKET_OUTGOING:
        continue
    first = struct.unpack("!H", packet[:2])[0]
    if protocol == 0x0800 and packet[9] == 6:
        heard[(first & 255) >> 2] += len(packet)
    if protocol == 0x86dd and packet[6] == 6:
        heard[(first >> 4 & 255) >> 2] += len(packet)
print(rank, heard[34], heard[10], flush=True)
assert library.aiacc_barrier(world, None, None) == 0 and library.aiacc_finalize() == 0
"""


def bytes_by_mark(hosts, marks, classes):
    """By rank: how many bytes came with the marks of latency, and with those of bulk; `classes` are those of the ranks' long call."""
    header = (STAGE / "include/aiacc/aiacc.h").read_text()
    names = {"FLOAT32": "AIACC_FLOAT32", "SUM": "AIACC_SUM"}
    program = DSCPS.format(**{key: re.search(rf"{name} = (\d+)", header)[1] for key, name in names.items()})
    numbers = [re.search(rf"AIACC_TRAFFIC_{name} (\d+)", header)[1] for name in classes]
    code, out, err = on(hosts, "h0:1,h1:1", *[word for mark in marks for word in ("-x", mark)], "/usr/bin/python3", "-c",
                        program, *numbers).finish()
    assert code == 0, err
    lines = sorted(tuple(map(int, line.split())) for line in out.splitlines())
    assert [line[0] for line in lines] == [0, 1], out
    return [line[1:] for line in lines]


MARKS = ["AIACC_TC_LAT=dscp=34,priority=4", "AIACC_TC_BULK=dscp=10"]


def test_packets_have_the_marks_of_their_class(hosts):
    for latency, bulk in bytes_by_mark(hosts, MARKS, ["DEFAULT", "DEFAULT"]):
        assert latency > 100 * 128 and bulk > 1000000
    assert bytes_by_mark(hosts, [], ["DEFAULT", "DEFAULT"]) == [(0, 0)] * 2


def test_packets_of_an_operation_have_the_marks_of_the_class_that_its_rank_gave(hosts):
    (latency, bulk), (latency_from_0, bulk_from_0) = bytes_by_mark(hosts, MARKS, ["LATENCY", "BULK"])
    assert latency < 1000000 < bulk, "rank 1 sends its payload as bulk"
    assert bulk_from_0 < 1000000 < latency_from_0, "and rank 0 its own as latency"


@pytest.mark.parametrize("how, says", [("kill", "killed by signal 9"), ("3", "exited with status 3")])
@pytest.mark.parametrize("where, others", [("h0:1,h1:1,h2:1", "02"), (UNEVEN, "0234")])
def test_survivors_on_every_host_name_the_dead(hosts, rank, where, others, how, says):
    code, _, err = on(hosts, where, rank, "death", how).finish()
    assert code == (137 if how == "kill" else 3)
    survivors = re.findall(r"survivor (\d): (.*), rank (-?\d+): (.*)", err)
    assert sorted(survivor[0] for survivor in survivors) == list(others), err
    for _, name, about, sentence in survivors:
        assert name == "peer failed" and about == "1" and "rank 1 on host h" in sentence and says in sentence, err


def test_a_port_that_goes_down_is_one_sentence(hosts, rank):
    a_port_goes_down(hosts, lambda seconds: on(hosts, "h0:1,h1:1", "-x", f"AIACC_TIMEOUT={seconds}s", rank, "loop", 1_000_000))


@pytest.mark.parametrize("where, ranks", [("h0:1,h1:1", 2), ("h0:1,h1:2", 3), (UNEVEN, 5)])
def test_ranks_that_disagree_are_told_on_every_rank(hosts, rank, where, ranks):
    code, _, err = on(hosts, where, rank, "mismatch").finish()
    assert code == 0, err
    sentences = re.findall(r"^rank \d: (.*)", err, re.M)
    assert len(sentences) == ranks
    for sentence in sentences:
        assert "allreduce of 10 fp32" in sentence and "rank 1" in sentence and "allreduce of 20 fp32" in sentence


@pytest.mark.parametrize("where", PLACEMENTS)
def test_whatever_they_disagree_in_all_ranks_are_told_of_both_sides(hosts, disagree, where):
    code, _, err = with_longer_limits(lambda ms: on(hosts, where, disagree, ms).finish(timeout=200),
                                      lambda ended: ended[0] == 0 or ", receivers: " not in ended[2], 2500)
    assert code == 0, err
    notices = [line for line in err.splitlines() if "nobody sends: rank 0 called recv" in line and "They wait until" in line]
    assert len(notices) == 2, err


@pytest.mark.parametrize("where", ["h0:1,h1:1", "h0:2"])
@pytest.mark.parametrize("what", ["allreduce", "messages"])
def test_thousands_of_outstanding_operations_end_after_a_rank_was_late(hosts, outstanding, where, what):
    """Two seconds: one that it is late, and one for all 4,096."""
    code, out, err = on(hosts, where, outstanding, what, 4096, 1000).finish()
    assert (code, said(err)) == (0, ""), err  # nor is anybody told that nobody sends
    print(f"seconds: {out.split()}")
    assert len(out.split()) == 2 and all(float(seconds) < 2 * TOLERANCE for seconds in out.split()), out


@pytest.mark.parametrize("where", ["h0:1,h1:1", "h0:2"])
def test_outstanding_operations_of_all_lengths_are_waited_for_in_any_order(hosts, outstanding, where):
    code, out, err = on(hosts, where, outstanding, "mixed", 2000, 100).finish()
    assert (code, out, said(err)) == (0, "", "")


def test_a_stopped_rank_of_another_host_is_no_failure(hosts, rank, tmp_path):
    job = on(hosts, UNEVEN, rank, "until", tmp_path / "over")
    try:
        process = next(pid for pid in job.wait_for_pids("rank", 5) if b"AIACC_RANK=4" in environment(pid))
        os.kill(process, signal.SIGSTOP)
        said = job.said_until("stopped")
        assert re.search("rank 4.*stopped", said), said
        os.kill(process, signal.SIGCONT)
        (tmp_path / "over").touch()
        code, _, err = job.finish()
        assert code == 0, said + err
    finally:
        job.clean()


def environment(pid):
    return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
