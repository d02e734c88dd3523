"""What a rank finds when it starts: its place, a port that is free to listen on, its binding; also inside another job."""
import os
import re
import socket

from launcher_support import AIACCRUN, Job, compiled, run

STORE = """
import os, socket, time
address = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))
if os.environ['RANK'] == '0':
    server = socket.socket(socket.AF_INET6 if FAMILY == 6 else socket.AF_INET)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(('::' if FAMILY == 6 else '0.0.0.0', address[1]))
    server.listen()
    print(server.accept()[0].recv(10).decode())
else:
    for _ in range(600):
        try:
            socket.create_connection(address).sendall(b'hello')
            break
        except OSError:
            time.sleep(0.05)
"""


def test_rank_0_may_listen_on_master_port():
    for family in (4, 6):
        code, out, err = run("-np", 2, "/usr/bin/python3", "-c", STORE.replace("FAMILY", str(family)))
        assert (code, out) == (0, "hello\n"), err


def test_nobody_else_gets_master_port_and_nobody_listens_there():
    job = Job(["-np", 1, "sh", "-c", "echo $MASTER_PORT; sleep 1000"])
    port = int(job.process.stdout.readline())
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", port))
            raise AssertionError(f"port {port} was free")
        except OSError:
            pass
    with socket.socket() as caller:
        assert caller.connect_ex(("127.0.0.1", port)) != 0
    job.process.kill()
    job.gone_within(5)


def test_a_job_inside_a_rank_is_a_job_of_its_own():
    code, out, err = run("-np", 2, AIACCRUN, "-np", 2, "sh", "-c", "echo $RANK $AIACC_RANK $WORLD_SIZE $MASTER_PORT")
    assert code == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert sorted(line[:3] for line in lines) == [["0", "0", "2"]] * 2 + [["1", "1", "2"]] * 2
    assert len({line[3] for line in lines}) == 2


def test_an_environment_of_more_than_a_megabyte():
    big = {f"BIG_{i}": "x" * 100_000 for i in range(12)}
    code, out, err = run("-np", 3, "sh", "-c", "env | grep -c ^BIG_", env=big)
    assert (code, out) == (0, "12\n" * 3), err


def test_bindings_are_reported_as_the_kernel_has_them():
    code, out, err = run("-np", 2, "--report-bindings", "sh", "-c", "grep Cpus_allowed_list /proc/self/status")
    assert code == 0
    assert len(re.findall(r"^aiaccrun: rank [01] on host \S+: .*cpus? [\d,-]+", err, re.M)) == 2
    if len(os.sched_getaffinity(0)) >= 2:
        assert len(set(out.splitlines())) == 2, "each rank has its own share of the cores"


def test_ranks_have_the_descriptor_limit_that_aiaccrun_was_started_with():
    code, out, _ = run("-np", 1, "sh", "-c", "ulimit -n", before=["prlimit", "--nofile=512:2000", "--"])
    assert (code, out) == (0, "512\n")


def test_a_rank_that_cannot_be_bound_runs_unbound_and_one_line_says_so():
    code, out, err = run("-np", 2, "--bind-to", "core", "--oversubscribe", "sh", "-c", "echo ran",
                         before=[compiled("tests/programs/deny_affinity.c")])
    assert (code, out) == (0, "ran\n" * 2), err
    if len(os.sched_getaffinity(0)) >= 2:
        assert len(re.findall(r"refused to bind rank 0 [^\n]*Operation not permitted[^\n]*\[AR-UNBOUND\]\n", err)) == 1
        assert err.count("AR-UNBOUND") == 1
