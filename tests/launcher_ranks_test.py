"""Ranks that use the library: the start barrier, the rules about their states, the news of a death, and the kill matrix in the middle
of an allreduce and while finalizing."""
import itertools
import os
import re
import signal
import time

import pytest

from launcher_orphans_test import BOUND, kill
from launcher_support import Job, closing_line, compiled, no_file_is_left, shared_files, users, with_longer_limits

RANK = compiled("tests/programs/job_rank.c")
WHO = ["aiaccrun", "keeper", "agent", "rank", "group"]


def job(ranks, *arguments, options=(), **kwargs):
    return Job(["-np", ranks, *options, RANK, *arguments], **kwargs)


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_a_job_that_initialises_and_finalizes(ranks, user):
    code, out, err = job(ranks, "run", user=user).finish()
    assert (code, out) == (0, ""), err


def test_one_program_after_another():
    code, _, err = Job(["-np", 3, "sh", "-c", f"{RANK} run && {RANK} run"]).finish()
    assert code == 0, err


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_that_finalize_become_ranks_again(ranks):
    code, out, err = job(ranks, "again", options=["--quiet"]).finish()
    assert (code, out, err) == (0, "", "")


def test_programs_behind_wrappers_are_known():
    code, _, err = Job(["-np", 2, "sh", "-c", f"sh -c '{RANK} run; exit $?'; exit $?"]).finish()
    assert code == 0, err


def test_1_a_rank_that_exits_0_without_finalize():
    code, _, err = job(2, "vanish").finish()
    assert code == 1
    assert re.search(r"rank \d on host \S+ exited with status 0 without finalize", closing_line(err))


@pytest.mark.parametrize("late", ["nobody", "rank-1", "others"])
def test_1_a_rank_that_never_initialised_while_others_did(late):
    waits = {"nobody": "", "rank-1": "[ $RANK != 1 ] || sleep 0.3; ", "others": "[ $RANK = 1 ] || sleep 0.3; "}[late]
    began = time.monotonic()
    code, _, err = Job(["-np", 3, "sh", "-c", f"{waits}exec {RANK} skip 1"]).finish()
    print(f"ended after {time.monotonic() - began:.2f} s")
    assert code == 1
    assert "rank 1 on host" in closing_line(err) and "never initialised" in closing_line(err)


@pytest.mark.parametrize("mode, expected, what", [("fail", 7, "exited with status 7"),
                                                  ("crash", 139, "was killed by signal 11")])
def test_survivors_are_told_who_died(mode, expected, what):
    started = job(3, mode, 1)
    code, out, err = started.finish()
    print(f"ended after {started.took:.2f} s")
    assert code == expected
    assert "rank 1 on host" in closing_line(err) and what in closing_line(err)


def test_a_second_live_process_of_a_rank_is_refused_with_both_numbers(tmp_path):
    begun = f"until grep -q holding {tmp_path}/first; do sleep 0.02; done"
    started = Job(["-np", 1, "sh", "-c", f"{RANK} hold >{tmp_path}/first & {begun} 2>/dev/null; {RANK} run; echo code $?; kill $!; wait"])
    code, out, err = started.finish()
    assert "code 3" in out
    assert re.search(r"process (\d+) claims rank 0, which process (\d+) already is", err)


def test_a_wrong_size_is_one_sentence():
    code, _, err = Job(["-np", 2, "sh", "-c", f"[ $RANK = 1 ] && export AIACC_SIZE=3; exec {RANK} run"]).finish()
    assert code == 3
    assert "rank 1 says that the job has 3 ranks, and aiaccrun started 2" in err


def test_a_limit_that_is_too_small_for_the_segment_is_refused_with_both_numbers():
    code, out, err = job(2, "run", before=["prlimit", "--fsize=1000000", "--"]).finish()
    assert code == 2
    assert closing_line(err).count("iB") == 2 and "ulimit -f" in err


def test_256_ranks_under_a_soft_limit_of_1024_descriptors():
    started = job(256, "run", before=["prlimit", "--nofile=1024:20000", "--"])
    code, _, err = started.finish(timeout=300)
    print(f"256 ranks: {started.took:.2f} s")
    assert code == 0, err


def cpu_seconds(started):
    ticks = 0
    for pid in started.processes():
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("arguments, ready", [((RANK, "hold"), "holding"), (("sh", "-c", "echo up; exec sleep 1000"), "up")],
                         ids=["initialised", "plain"])
def test_waiting_costs_nothing(arguments, ready):
    started = Job(["-np", 64, *arguments])
    for _ in range(64):
        assert started.process.stdout.readline().decode().strip() == ready

    def share_within(seconds):
        before, began = cpu_seconds(started), time.monotonic()
        time.sleep(seconds)
        return (cpu_seconds(started) - before) / (time.monotonic() - began)
    time.sleep(1)
    share = with_longer_limits(share_within, lambda share: share < 0.01 * 10, 5)
    started.process.kill()
    started.gone_within(BOUND)
    print(f"64 ranks use {100 * share:.2f} % of one core")
    assert share < 0.01 * 10


def check(victims, mode, ready, user="self", delay=0.0):
    before = shared_files()
    started = job(3, mode, options=["--kill-grace", 1], user=user)
    for _ in range(3):
        assert started.process.stdout.readline().decode().strip() == ready
    time.sleep(delay)
    for victim in victims:
        kill(started, victim)
    took = started.gone_within(BOUND)
    print(f"{'+'.join(victims)} / {mode}: all gone after {took:.2f} s")
    no_file_is_left(before, BOUND)


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("who", WHO)
def test_killed_in_the_middle_of_an_allreduce(who, user):
    check([who], "loop", "looping", user)


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("who", WHO)
def test_killed_while_finalizing(who, user):
    check([who], "leave", "leaving", user)


@pytest.mark.parametrize("pair", [pair for pair in itertools.combinations(WHO, 2) if set(pair) != {"keeper", "agent"}],
                         ids="+".join)
def test_two_killed_in_the_middle_of_an_allreduce(pair):
    check(pair, "loop", "looping")


def test_a_frozen_rank_holds_nothing_back_when_the_job_ends():
    started = job(3, "loop")
    for _ in range(3):
        started.process.stdout.readline()
    os.kill(started.pids("job_rank")[0], signal.SIGSTOP)
    started.process.send_signal(signal.SIGTERM)
    assert started.finish()[0] == 143
