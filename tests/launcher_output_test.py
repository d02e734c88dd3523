"""What ranks write arrives whole, in order and unchanged, whatever it is and whoever reads it."""
import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import select
import signal
import subprocess
import time

import pytest

from launcher_support import Job, closing_line, run, users, with_longer_limits


def test_lines_are_whole_and_tagged():
    code, out, err = run("-np", 8, "--tag-output", "sh", "-c", "i=0; while [ $i -lt 200 ]; do echo rank $RANK line $i; "
                         "echo error $i >&2; i=$((i+1)); done")
    assert code == 0
    seen = {rank: 0 for rank in range(8)}
    for line in out.splitlines():
        rank, same, number = map(int, re.fullmatch(r"\[(\d)\] rank (\d) line (\d+)", line).groups())
        assert rank == same and number == seen[rank]
        seen[rank] += 1
    assert set(seen.values()) == {200}
    assert len(re.findall(r"^\[\d\] error \d+$", err, re.M)) == 1600


def test_stdout_and_stderr_stay_apart():
    assert run("-np", 1, "sh", "-c", "echo out; echo err >&2") == (0, "out\n", "err\n")


def test_a_line_of_a_megabyte_and_no_newline_at_the_end():
    code, out, _ = run("-np", 1, "sh", "-c", "head -c 1048576 /dev/zero | tr '\\0' x; echo; printf end")
    assert code == 0
    assert out == "x" * 1048576 + "\nend"


def test_a_long_line_is_tagged_once():
    code, out, _ = run("-np", 1, "--tag-output", "sh", "-c", "head -c 1048576 /dev/zero | tr '\\0' x; echo; echo y")
    assert out == "[0] " + "x" * 1048576 + "\n[0] y\n"


def test_any_bytes_pass_unchanged():
    data = hashlib.shake_128(b"seed").digest(3_000_000)  # NULs, invalid UTF-8, lines of all lengths
    source = "import hashlib,sys; sys.stdout.buffer.write(hashlib.shake_128(b'seed').digest(3000000))"
    code, out, _ = Job(["-np", 1, "/usr/bin/python3", "-c", source]).finish_bytes()
    assert code == 0 and out == data


def test_a_line_without_end_shows_after_a_moment():
    job = Job(["-np", 1, "sh", "-c", "printf 'password: '; sleep 1000"])
    is_shown = select.select([job.process.stdout], [], [], 60)[0]
    print(f"shown after {time.monotonic() - job.started:.2f} s")
    try:
        assert is_shown and os.read(job.process.stdout.fileno(), 100) == b"password: "
    finally:
        job.clean()


def test_a_continued_line_is_not_tagged_again():
    _, out, _ = run("-np", 1, "--tag-output", "sh", "-c", "printf one; sleep 0.5; echo two; echo three")
    assert out == "[0] onetwo\n[0] three\n"


def test_a_reader_that_left_ends_the_job_quietly_with_141():
    job = Job(["-np", 4, "yes"])
    assert job.process.stdout.read(2) == b"y\n"
    job.process.stdout.close()
    job.process.stdout = None
    code, _, err = job.finish()
    assert code == 141
    assert [line for line in err.splitlines() if "AR-BUSY" not in line] == []


def closed(number):
    return ["sh", "-c", f'exec "$@" {number}>&-', "sh"]


def test_closed_stdout_is_dev_null_with_one_warning():
    job = Job(["-np", 2, "sh", "-c", "echo lost; echo kept >&2"], before=closed(1), stdout=None)
    code, _, err = job.finish()
    assert code == 0
    assert err.count("AR-STDOUT") == 1 and err.count("kept") == 2 and "lost" not in err


@pytest.mark.parametrize("number", [0, 2])
def test_closed_descriptors_are_filled_first(number):
    job = Job(["-np", 2, "sh", "-c", "echo here; ls -l /proc/self/fd >&2"], before=closed(number))
    code, out, _ = job.finish()
    assert code == 0 and out == "here\n" * 2


def test_ranks_read_dev_null_and_inherit_nothing():
    code, out, _ = run("-np", 1, "--stdin", "none", "sh", "-c", "wc -c; ls /proc/self/fd | wc -l; readlink /proc/self/fd/0",
                       stdin=subprocess.PIPE)
    assert out.split() == ["0", "4", "/dev/null"]  # ls holds the folder itself open


@pytest.mark.parametrize("user", users())
def test_a_full_pipe_blocks_ranks_and_neither_timeout_nor_killing(user):
    """Nobody reads: the job is blocked, ends at its time-out all the same, and what is lost is counted."""
    dropped = r"(\d+) bytes of output that nobody read were dropped"

    def attempt(limit):
        job = Job(["-np", 2, "--timeout", limit, "--kill-grace", 1, "yes"], user=user)
        grown = {}

        def ended():
            grown.update(resident_kb(job))
            return job.process.poll() is not None
        job.wait_for(ended, "its end", (limit + 1 + 1) * 10)
        code, _, err = job.finish()
        print(f"ended after {job.took:.2f} s; resident {grown} KB")
        return code, closing_line(err)
    code, line = with_longer_limits(attempt, lambda ended: re.search(dropped, ended[1]), 2)
    assert code == 124 and re.search(dropped, line), line


def resident_kb(job):
    total = {}
    for pid, name in job.processes().items():
        if not name.startswith("aiacc"):
            continue
        with contextlib.suppress(OSError):
            found = re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
            total.update({name: int(found[1])} if found else {})  # one that ends has none
    assert all(kb < 64 * 1024 for kb in total.values()), total
    return total


def test_a_full_pipe_does_not_hold_up_signals():
    job = Job(["-np", 2, "--kill-grace", 1, "yes"])
    job.wait_for_pids("yes", 2)
    time.sleep(1)
    job.process.send_signal(signal.SIGINT)
    job.process.wait(30)
    code, _, err = job.finish()
    print(f"ended after {job.took:.2f} s")
    assert code == 130


def test_a_slow_reader_gets_everything():
    job = Job(["-np", 2, "sh", "-c", "seq 1 200000"])
    time.sleep(1)
    code, out, _ = job.finish()
    assert code == 0
    assert sorted(map(int, out.split())) == sorted(list(range(1, 200001)) * 2)


def test_flags_of_inherited_descriptors_stay_as_they_are():
    reading, writing = os.pipe()
    before = fcntl.fcntl(writing, fcntl.F_GETFL)
    job = Job(["-np", 1, "sh", "-c", "echo hi; sleep 0.3; echo ho"], stdout=writing)
    during = {before}
    while job.process.poll() is None:
        during.add(fcntl.fcntl(writing, fcntl.F_GETFL))
        time.sleep(0.02)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "hi\nho\n"
    assert during == {before}
    assert job.finish()[0] == 0


def test_output_to_a_file_keeps_what_others_append(tmp_path):
    log = tmp_path / "log"
    with open(log, "a") as file:
        file.write("before\n")
        file.flush()
        assert Job(["-np", 1, "echo", "inside"], stdout=file).finish()[0] == 0
        file.write("after\n")
    assert log.read_text() == "before\ninside\nafter\n"


def test_a_full_device_ends_the_job_with_a_sentence():
    with open("/dev/full", "wb") as full:
        code, _, err = Job(["-np", 1, "sh", "-c", "echo x; sleep 1000"], stdout=full).finish()
    assert code == 125 and "No space left" in closing_line(err)


@pytest.mark.skipif("ordinary" not in users(), reason="needs root, to give another user our pipe")
def test_a_pipe_that_belongs_to_another_user():
    code, out, _ = Job(["-np", 2, "seq", "1", "50000"], user="ordinary").finish()
    assert code == 0 and len(out.split()) == 100000
