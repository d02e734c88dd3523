"""Standard input of aiaccrun: one rank reads it, on this host or another, byte by byte as it was; and nobody else is kept by it."""
import contextlib
import hashlib
import os
import random
import select
import subprocess
import sys

import pytest

import namespace_hosts
from launcher_hosts_support import PRETEND, RELAY
from launcher_support import Job, closing_line, run

BYTES = random.Random(5).randbytes(5_000_000)
DIGEST = "case $RANK in {0}) sha256sum;; *) wc -c;; esac"
# Ways to a job of two ranks: both on this host, or each behind a starter on a host of its own.
WAYS = {"here": ["-np", 2], "agents": [*PRETEND, RELAY, "-H", "a,b"]}
# Bytes that a rank which does not read may take: the window, aiaccrun's pipe and the rank's, and what stands in a relay's.
MOST = 2_000_000
WAY = pytest.mark.parametrize("way", WAYS)


def expected(rank, data=BYTES):
    return sorted([f"{hashlib.sha256(data).hexdigest()}  -"] + ["0"]) if rank is not None else ["0", "0"]


def digests(rank, data=BYTES):
    return sorted([hashlib.sha256(data).hexdigest() + "  -", "0"])


@WAY
@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_reads_all_of_it_and_others_nothing(way, rank):
    options = ["--stdin", rank] if rank else []
    job = Job([*WAYS[way], *options, "sh", "-c", DIGEST.format(rank)], stdin=subprocess.PIPE)
    job.process.stdin.write(BYTES)
    code, out, err = job.finish()
    assert (code, sorted(out.splitlines()), err) == (0, digests(rank), "")


def test_a_file_is_read_from_where_it_stands(tmp_path):
    (tmp_path / "bytes").write_bytes(BYTES)
    with open(tmp_path / "bytes", "rb", buffering=0) as source:
        source.seek(1_000_001)
        code, out, err = run("-np", 2, "sh", "-c", DIGEST.format(0), stdin=source)
    assert (code, sorted(out.splitlines()), err) == (0, digests(0, BYTES[1_000_001:]), "")


@pytest.mark.skipif(bool(namespace_hosts.unavailable()), reason=str(namespace_hosts.unavailable()))
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_of_a_host_that_shares_nothing(rank):
    with namespace_hosts.Hosts(2) as hosts:
        job = Job(["--launch-agent", hosts.enter, "-H", "h0,h1", "--stdin", rank, "sh", "-c",
                   f"hostname; {DIGEST.format(rank)}"], stdin=subprocess.PIPE)
        job.process.stdin.write(BYTES)
        code, out, err = job.finish()
    assert (code, sorted(out.splitlines()), err) == (0, sorted([*digests(rank), "h0", "h1"]), "")


@WAY
def test_lines_come_as_they_are_typed_and_then_the_end(way):
    job = Job([*WAYS[way], "sh", "-c", "while read -r line; do echo \"<$line>\"; done; echo end of $RANK"],
              stdin=subprocess.PIPE)
    ends = [job.process.stdout.readline()]
    assert ends == [b"end of 1\n"]
    for number in range(20):
        job.process.stdin.write(b"line %d\n" % number)
        job.process.stdin.flush()
        assert job.process.stdout.readline() == b"<line %d>\n" % number
    job.process.stdin.close()
    job.process.stdin = None
    assert job.finish() == (0, "end of 0\n", "")


def test_a_python_prompt_answers():
    job = Job(["-np", 1, sys.executable, "-i", "-q"], stdin=subprocess.PIPE)
    for number in range(3):
        job.process.stdin.write(b"%d * 7\n" % number)
        job.process.stdin.flush()
        assert job.process.stdout.readline() == b"%d\n" % (number * 7)
    code, _, err = job.finish()
    assert code == 0 and ">>> " in err


@pytest.mark.parametrize("options", [["--stdin", "none"], []], ids=["none", "closed"])
def test_nothing_to_read(options):
    before = [] if options else ["sh", "-c", 'exec "$@" <&-', "sh"]
    code, out, err = run("-np", 2, *options, "sh", "-c", "wc -c", before=before, stdin=subprocess.PIPE)
    assert (code, out, err) == (0, "0\n0\n", "")


def test_with_none_it_is_left_to_others():
    job = Job(["-np", 1, "--stdin", "none", "readlink", "/proc/self/fd/0"], before=["sh", "-c", '"$@"; cat', "sh"],
              stdin=subprocess.PIPE)
    job.process.stdin.write(b"for whoever comes next")
    assert job.finish() == (0, "/dev/null\nfor whoever comes next", "")


def test_what_cannot_be_read_is_an_end_with_a_remark():
    folder = os.open("/", os.O_RDONLY)
    code, out, err = run("-np", 1, "wc", "-c", stdin=folder)
    os.close(folder)
    assert (code, out) == (0, "0\n")
    assert closing_line(err) == "aiaccrun: reading from standard input: Is a directory; rank 0 reads the end of its input [AR-STDIN]"


def fill(job):
    """Writes until nothing more is taken; returns how much was."""
    pipe = job.process.stdin.fileno()
    os.set_blocking(pipe, False)
    taken = 0
    while taken < 10 * MOST and select.select([], [pipe], [], 1)[1]:
        taken += os.write(pipe, BYTES[:65536])
    return taken


@WAY
def test_a_rank_that_does_not_read_costs_a_window(way):
    job = Job([*WAYS[way], "sleep", 1000], stdin=subprocess.PIPE)
    job.wait_for_pids("sleep", 2)
    taken = fill(job)
    print(f"{taken} bytes were taken")
    assert taken < MOST
    job.process.terminate()  # and nothing else waits for it
    code, _, err = job.finish()
    assert code == 143 and "2 ranks on" in closing_line(err)


@WAY
@pytest.mark.parametrize("program, code", [("head -c 10 >/dev/null", 0), ("exec <&-; sleep 0.3", 0), ("exit 3", 3)],
                         ids=["leaves", "closes", "fails"])
def test_a_rank_may_stop_reading(way, program, code):
    endless = ["sh", "-c", 'yes | "$@"', "sh"]
    ended, _, err = run(*WAYS[way], "sh", "-c", f"test $RANK = 1 && exec sleep 0.5; {program}", before=endless)
    assert ended == code, err
    assert code or err == "", "no error of anybody"


def test_the_rank_that_reads_ends_before_others():
    job = Job(["-np", 2, "sh", "-c", "test $RANK = 0 && exit 0; exec sleep 1000"], stdin=subprocess.PIPE)
    job.wait_for(lambda: len(job.pids("sleep")) == 1 and not job.pids("sh"), "the end of rank 0")
    assert fill(job) < MOST
    job.process.terminate()
    assert job.finish()[0] == 143


def test_a_host_that_is_lost_takes_its_input_along():
    job = Job([*PRETEND, RELAY, "-H", "a,b", "--kill-grace", 1, "sleep", 1000], stdin=subprocess.PIPE)
    job.wait_for_pids("sleep", 2)
    fill(job)
    for pid in job.pids("aiacc-agent"):
        with contextlib.suppress(ProcessLookupError):  # the job may be ending for the first one already
            os.kill(pid, 9)
    code, _, err = job.finish()
    assert code == 125 and "AR-HOST-LOST" in err


def test_the_job_fails_to_start_and_nothing_was_read():
    job = Job(["-np", 1, "no-such-program"], before=["sh", "-c", '"$@"; cat', "sh"], stdin=subprocess.PIPE)
    job.process.stdin.write(b"not for a rank")
    assert job.finish()[:2] == (0, "not for a rank")


# The leader of a session with a terminal, as a shell: aiaccrun in the background, later in the foreground.
SHELL = """import fcntl, os, signal, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
signal.alarm(60)  # a job that was stopped after all says nothing more
job = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, preexec_fn=os.setpgrp)
said = job.stdout.readline()
while os.read(0, 100) != b"begin\\n": pass
stopped = os.waitid(os.P_PID, job.pid, os.WSTOPPED | os.WNOHANG)
os.tcsetpgrp(0, job.pid)
print(said, "stopped" if stopped else "running", flush=True)
answer = job.stdout.readline()
os.tcsetpgrp(0, os.getpgrp())
print(answer, "back", flush=True)
while os.read(0, 100) != b"mine\\n": pass
stopped = os.waitid(os.P_PID, job.pid, os.WSTOPPED | os.WNOHANG)
print("stopped" if stopped else "still running", flush=True)
os.tcsetpgrp(0, job.pid)
print(job.stdout.read(), job.wait(), flush=True)
"""


def test_a_terminal_is_read_in_the_foreground_only():
    terminal, ours = os.openpty()
    job = Job(["-np", 1, "sh", "-c", "echo up; while read -r line; do echo \"<$line>\"; done"],
              before=[sys.executable, "-c", SHELL], stdin=ours)
    os.close(ours)

    def say(typed, heard):
        os.write(terminal, typed)
        assert job.process.stdout.readline().decode() == heard

    try:
        say(b"begin\n", "b'up\\n' running\n")  # to the shell: it is in the foreground
        say(b"to the rank\n", "b'<to the rank>\\n' back\n")
        say(b"mine\n", "still running\n")
        say(b"again\n\x04", "b'<again>\\n' 0\n")  # and the end, as Ctrl-D says it
        assert job.finish() == (0, "", "")
    finally:
        os.close(terminal)
        job.clean()
