"""Hosts that are lost: whoever is killed or frozen on the way between aiaccrun and ranks of other hosts, everything of the job
ends within seconds everywhere, and one line says what was lost."""
import contextlib
import itertools
import os
import random
import re
import signal
import time

import pytest

from launcher_hosts_support import ENTER, PRETEND, RELAY
from launcher_support import PROGRAMS, Job, check_nothing_is_left, closing_line, state_and_parent, users, with_longer_limits

BOUND = 5
WHO = ["aiaccrun", "group", "starter", "keeper", "agent", "rank"]
# aiaccrun's whole group has its starter in it no more: that has a session of its own. Keeper and agent: see launcher_orphans_test.
PAIRS = [pair for pair in itertools.combinations(WHO, 2)
         if set(pair) != {"keeper", "agent"} and pair != ("aiaccrun", "group")]


def victim(job, who):
    """A process of that kind on one of the hosts, or None."""
    processes = job.processes()
    if who == "starter":
        found = [pid for pid, name in processes.items() if name == "relay" and state_and_parent(pid)[1] == job.process.pid]
    elif who in ("keeper", "agent"):
        found = [pid for pid, name in processes.items() if name == f"aiacc-{who}"]
    else:
        agents = {pid for pid, name in processes.items() if name == "aiacc-agent"}
        found = [pid for pid in processes if state_and_parent(pid)[1] in agents]
    return max(found, default=None)


def kill(job, who):
    if who == "aiaccrun":
        job.process.kill()
        return True
    try:
        if who == "group":
            os.killpg(job.process.pid, signal.SIGKILL)
            return True
        pid = victim(job, who)
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False


def check(victims, program, user="self", delay=None):
    arguments = [*PRETEND, RELAY, "-H", "a:2,b:2", "--kill-grace", 1, "sh", "-c", PROGRAMS[program]]
    check_nothing_is_left(arguments, user, 4, victims, kill, BOUND, delay)


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("who", WHO)
def test_killed_while_waiting(who, program, user):
    check([who], program, user)


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_two_killed_while_waiting(pair):
    check(pair, "setsid")


@pytest.mark.parametrize("who", WHO)
def test_killed_while_starting(who):
    for delay in sorted(random.Random(who).uniform(0, 0.15) for _ in range(3)):
        check([who], "wait", delay=delay)


@pytest.mark.parametrize("who, id", [("starter", "AR-HOST-LOST"), ("keeper", "AR-AGENT"), ("agent", "AR-HOST-LOST")])
def test_125_and_one_line(who, id):
    job = Job([*PRETEND, RELAY if who == "starter" else ENTER, "-H", "a:2,b:2", "sleep", 1000])
    job.wait_for_pids("sleep", 4)
    os.kill(victim(job, who), signal.SIGKILL)
    code, _, err = job.finish()
    assert code == 125
    assert id in closing_line(err) and re.search("host [ab]", closing_line(err)), err


def test_two_hosts_at_once():
    job = Job([*PRETEND, ENTER, "-H", "a,b,c", "sleep", 1000])
    job.wait_for_pids("sleep", 3)
    for pid in job.pids("aiacc-agent")[:2]:
        with contextlib.suppress(ProcessLookupError):  # the job may be ending for the first one already
            os.kill(pid, signal.SIGKILL)
    code, _, err = job.finish()
    assert code == 125 and "AR-HOST-LOST" in closing_line(err)


def with_longer_leases(attempt):
    """attempt(job, lease) with two ranks, until it returns True. A slow machine may lose a host before, or meanwhile."""
    def started(lease):
        job = Job([*PRETEND, ENTER, "-H", "a,b", "sleep", 1000], env={"AIACC_LEASE": f"{lease}s"})
        try:
            job.wait_for(lambda: len(job.pids("sleep")) == 2 or job.process.poll() is not None, "the ranks")
            return job.process.poll() is None and attempt(job, lease)
        finally:
            job.clean()
    assert with_longer_limits(started, bool, 2)


def test_a_host_that_falls_silent_is_lost_after_its_lease():
    def attempt(job, lease):
        frozen = victim(job, "agent")
        if frozen is None:
            return False
        began = time.monotonic()
        try:
            os.kill(frozen, signal.SIGSTOP)
        except ProcessLookupError:
            return False
        code, _, err = job.finish()
        took = time.monotonic() - began
        print(f"lost after {took:.2f} s: {err}")
        assert code == 125
        return took >= lease and re.search(rf"host [ab] was lost: .* {lease} s \(AIACC_LEASE\)", closing_line(err))
    with_longer_leases(attempt)


def test_a_third_ctrl_c_waits_for_no_host_that_does_not_answer():
    """Its lease is longer than the test waits."""
    job = Job([*PRETEND, RELAY, "-H", "a,b", "sleep", 1000], env={"AIACC_LEASE": "600s"})
    job.wait_for_pids("sleep", 2)
    os.kill(victim(job, "agent"), signal.SIGSTOP)
    for _ in range(3):
        job.process.send_signal(signal.SIGINT)
        job.said_until("SIGINT received|SIGTERM sent|SIGKILL sent")
    code, _, err = job.finish()
    assert code == 130, err


def test_ranks_end_when_aiaccrun_falls_silent():
    def attempt(job, lease):
        job.process.send_signal(signal.SIGSTOP)
        job.wait_for(lambda: not job.pids("sleep"), "the ranks to end", timeout=(lease + BOUND) * 10)
        job.process.send_signal(signal.SIGCONT)
        code, _, err = job.finish()
        assert code == 125, err
        return True
    with_longer_leases(attempt)


def test_a_job_that_its_user_stopped_is_not_lost():
    def attempt(job, lease):
        pids = job.pids("sleep")
        job.process.send_signal(signal.SIGTSTP)
        job.wait_for(lambda: state_and_parent(job.process.pid)[0] in "TZ", "aiaccrun to stop")
        time.sleep(1.5 * lease)
        lived = job.pids("sleep") == pids
        job.process.send_signal(signal.SIGCONT)
        time.sleep(1.5 * lease)
        lived = lived and job.pids("sleep") == pids
        job.process.send_signal(signal.SIGTERM)
        code, _, err = job.finish()
        assert code == 143 or code == 125 and "AR-HOST-LOST" in closing_line(err), err
        return code == 143 and lived
    with_longer_leases(attempt)


@pytest.mark.parametrize("user", users())
def test_a_stopped_rank_of_another_host_is_reported(user):
    job = Job([*PRETEND, ENTER, "-H", "a,b", "sleep", 1000], user=user)
    pid = job.wait_for_pids("sleep", 2)[-1]
    os.kill(pid, signal.SIGSTOP)
    assert f"(process {pid}) was stopped by signal {int(signal.SIGSTOP)}" in job.remark()
    job.process.send_signal(signal.SIGTERM)
    assert job.finish()[0] == 143
