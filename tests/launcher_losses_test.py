"""Hosts that are lost: whoever is killed or frozen on the way between aiaccrun and ranks of other hosts, everything of the job
ends within seconds everywhere, and one line says what was lost."""
import contextlib
import itertools
import os
import pathlib
import random
import re
import signal
import time

import pytest

from launcher_hosts_support import ENTER, PRETEND, RELAY
from launcher_support import PROGRAMS, Job, check_nothing_is_left, closing_line, users

BOUND = 5
WHO = ["aiaccrun", "group", "starter", "keeper", "agent", "rank"]
# aiaccrun's whole group has its starter in it no more: that has a session of its own. Keeper and agent: see launcher_orphans_test.
PAIRS = [pair for pair in itertools.combinations(WHO, 2)
         if set(pair) != {"keeper", "agent"} and pair != ("aiaccrun", "group")]


def stat(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return {"parent": int(fields[1]), "group": int(fields[2]), "session": int(fields[3])}


def victim(job, who):
    """A process of that kind on one of the hosts, or None."""
    processes = job.processes()
    try:
        if who == "starter":
            found = [pid for pid, name in processes.items() if name == "relay" and stat(pid)["parent"] == job.process.pid]
            return max(found, default=None)
        if who in ("keeper", "agent"):
            return max((pid for pid, name in processes.items() if name == f"aiacc-{who}"), default=None)
        agents = {pid for pid, name in processes.items() if name == "aiacc-agent"}
        return max((pid for pid in processes if stat(pid)["parent"] in agents), default=None)
    except (FileNotFoundError, ProcessLookupError):
        return None


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


def test_a_host_that_falls_silent_is_lost_after_its_lease():
    job = Job([*PRETEND, ENTER, "-H", "a,b", "sleep", 1000], env={"AIACC_LEASE": "2s"})
    job.wait_for_pids("sleep", 2)
    frozen = victim(job, "agent")
    began = time.monotonic()
    os.kill(frozen, signal.SIGSTOP)
    code, _, err = job.finish()
    took = time.monotonic() - began
    print(f"lost after {took:.2f} s")
    assert code == 125
    assert re.search(r"host [ab] was lost: .* 2 s \(AIACC_LEASE\)", closing_line(err)), err
    assert took >= 2


def test_a_third_ctrl_c_waits_for_no_host_that_does_not_answer():
    job = Job([*PRETEND, RELAY, "-H", "a,b", "sleep", 1000])
    job.wait_for_pids("sleep", 2)
    os.kill(victim(job, "agent"), signal.SIGSTOP)
    began = time.monotonic()
    lines = 0
    for _ in range(3):
        job.process.send_signal(signal.SIGINT)
        while lines < 3 and not re.search("SIGINT received|SIGTERM sent|SIGKILL sent", job.process.stderr.readline().decode()):
            pass
        lines += 1
    code, _, err = job.finish()
    took = time.monotonic() - began
    print(f"returned after {took:.2f} s")
    assert code == 130, err
    assert took < 30, "it did not wait for the lease"


def test_ranks_end_when_aiaccrun_falls_silent():
    job = Job([*PRETEND, ENTER, "-H", "a,b", "sleep", 1000], env={"AIACC_LEASE": "2s"})
    job.wait_for_pids("sleep", 2)
    job.process.send_signal(signal.SIGSTOP)
    job.wait_for(lambda: not job.pids("sleep"), "the ranks to end", timeout=(2 + BOUND) * 10)
    job.process.send_signal(signal.SIGCONT)
    assert job.finish()[0] == 125


def test_a_job_that_its_user_stopped_is_not_lost():
    job = Job([*PRETEND, ENTER, "-H", "a,b", "sleep", 1000], env={"AIACC_LEASE": "2s"})
    pids = job.wait_for_pids("sleep", 2)
    job.process.send_signal(signal.SIGTSTP)
    job.wait_for(lambda: pathlib.Path(f"/proc/{job.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T",
                 "aiaccrun to stop")
    time.sleep(3)
    assert job.pids("sleep") == pids
    job.process.send_signal(signal.SIGCONT)
    time.sleep(3)
    assert job.pids("sleep") == pids
    job.process.send_signal(signal.SIGTERM)
    assert job.finish()[0] == 143


@pytest.mark.parametrize("user", users())
def test_a_stopped_rank_of_another_host_is_reported(user):
    job = Job([*PRETEND, ENTER, "-H", "a,b", "sleep", 1000], user=user)
    pid = job.wait_for_pids("sleep", 2)[-1]
    os.kill(pid, signal.SIGSTOP)
    line = job.process.stderr.readline().decode()
    while "AR-BUSY" in line:
        line = job.process.stderr.readline().decode()
    assert f"(process {pid}) was stopped by signal {int(signal.SIGSTOP)}" in line
    job.process.send_signal(signal.SIGTERM)
    assert job.finish()[0] == 143
