"""Nothing outlives the job: whoever is killed, and when, no process of it lives five seconds later.

The matrix: who × what ranks do × phase × who runs it. When keeper and agent are killed in the same instant aiaccrun ends what
remains; without it nobody does, and --isolate closes that (launcher_isolate_test.py).
"""
import itertools
import os
import random
import signal
import time

import pytest

from launcher_support import PROGRAMS, Job, check_nothing_is_left, closing_line, state_and_parent, users

BOUND = 5
WHO = ["aiaccrun", "keeper", "agent", "rank", "group"]
PAIRS = [pair for pair in itertools.combinations(WHO, 2) if set(pair) != {"keeper", "agent"} and pair != ("aiaccrun", "group")]


def kill(job, who):
    """SIGKILL; False if the victim is not there yet."""
    processes = job.processes()
    named = {name: pid for pid, name in sorted(processes.items(), reverse=True)}
    try:
        if who == "aiaccrun":
            job.process.kill()
        elif who == "group":
            os.killpg(job.process.pid, signal.SIGKILL)
        elif who in ("keeper", "agent") and f"aiacc-{who}" in named:
            os.kill(named[f"aiacc-{who}"], signal.SIGKILL)
        elif who == "rank":
            agent = named.get("aiacc-agent")
            for pid in processes:
                if state_and_parent(pid)[1] == agent:
                    os.kill(pid, signal.SIGKILL)
                    return True
            return False
        else:
            return False
    except ProcessLookupError:
        return False
    return True


def check(victims, program, user, delay=None):
    # The grace is for ranks that fail; what is lost is ended after two seconds whatever the grace.
    arguments = ["-np", 3, "--kill-grace", 1, "sh", "-c", PROGRAMS[program]]
    check_nothing_is_left(arguments, user, 3, victims, kill, BOUND, delay)


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("who", WHO)
def test_killed_while_waiting(who, program, user):
    check([who], program, user)


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("who", WHO)
def test_killed_while_starting(who, user):
    chance = random.Random(who + user)
    for _ in range(6):
        check([who], "wait", user, delay=chance.uniform(0, 0.05))


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_two_killed_at_once(pair):
    check(pair, "setsid", "self")
    check(tuple(reversed(pair)), "wait", "self")


def test_keeper_and_agent_at_once_while_aiaccrun_lives():
    job = Job(["-np", 2, "sh", "-c", PROGRAMS["setsid"]])
    job.wait_for_pids("sleep", 6)
    os.kill(job.pids("aiacc-agent")[0], signal.SIGSTOP)  # so that neither sees the other go
    for name in ("aiacc-keeper", "aiacc-agent"):
        os.kill(job.pids(name)[0], signal.SIGKILL)
    code, _, err = job.finish()
    assert code == 125 and "AR-AGENT" in closing_line(err)


@pytest.mark.parametrize("user", users())
def test_what_ranks_leave_behind_is_ended_and_said(user):
    job = Job(["-np", 2, "sh", "-c", "setsid sleep 1000 & until [ $(cat /proc/$!/comm) = sleep ]; do sleep 0.05; done"], user=user)
    code, _, err = job.finish()
    assert code == 0
    assert "ended 2 processes that ranks left behind: sleep (" in err


def test_a_stopped_job_ends_too_when_aiaccrun_is_killed():
    job = Job(["-np", 2, "sleep", 1000])
    for pid in job.wait_for_pids("sleep", 2):
        os.kill(pid, signal.SIGSTOP)
    job.process.kill()
    print(f"all gone after {job.gone_within(BOUND):.2f} s")


def test_killed_while_output_is_blocked():
    for victim in ("aiaccrun", "keeper", "agent"):
        job = Job(["-np", 2, "yes"])
        job.wait_for_pids("yes", 2)
        time.sleep(0.3)
        kill(job, victim)
        job.process.stdout.close()
        job.process.stdout = None
        print(f"{victim}: all gone after {job.gone_within(BOUND):.2f} s")
