"""--isolate: the keeper is process 1 of a pid namespace, and the kernel ends all of it with the keeper."""
import contextlib
import os
import signal
import subprocess

import pytest

from launcher_support import Job, as_user, closing_line, users


def can_isolate(user):
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"] + (["--user", "--map-root-user"] if user == "ordinary" else [])
    return subprocess.run([*as_user(user), *unshare, "true"], capture_output=True).returncode == 0


def isolated(arguments, user):
    if not can_isolate(user):
        code, _, err = Job(["--isolate", *arguments], user=user).finish()
        assert code == 2 and "AR-ISOLATE" in closing_line(err)
        pytest.skip(f"the kernel does not let {user} make a pid namespace; aiaccrun says: {closing_line(err)}")
    return Job(["--isolate", *arguments], user=user)


@pytest.mark.parametrize("user", users())
def test_ranks_live_in_a_namespace_of_their_own_with_their_own_user(user):
    job = isolated(["-np", 2, "sh", "-c", "ls -d /proc/[0-9]* | wc -l; id -u; cat /proc/1/comm"], user)
    code, out, _ = job.finish()
    assert code == 0
    words = out.split()
    assert words.count("aiacc-keeper") == 2
    user_id = {"ordinary": "65534"}.get(user, str(os.geteuid()))
    assert words.count(user_id) == 2
    assert all(int(word) < 20 for word in words if word.isdigit() and word != user_id)


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("names", [["aiacc-keeper"], ["aiacc-agent"], ["aiacc-keeper", "aiacc-agent"]], ids="+".join)
def test_keeper_and_agent_killed_in_the_same_instant(names, user):
    job = isolated(["-np", 2, "sh", "-c", "setsid sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' & sleep 1000"], user)
    job.wait_for_pids("sleep", 8)
    victims = [pid for name in names for pid in job.pids(name)]
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)  # so that none can do anything about the other's end
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):  # the end of process 1 was the end of it
            os.kill(pid, signal.SIGKILL)
    code, _, err = job.finish()
    assert code == 125 and "AR-AGENT" in closing_line(err)


@pytest.mark.parametrize("user", users())
def test_aiaccrun_killed(user):
    job = isolated(["-np", 2, "sh", "-c", "setsid sleep 1000 & sleep 1000"], user)
    job.wait_for_pids("sleep", 4)
    job.process.kill()
    print(f"all gone after {job.gone_within(5):.2f} s")


@pytest.mark.parametrize("user", users())
def test_exit_codes_and_signals_pass(user):
    job = isolated(["-np", 2, "sh", "-c", "[ $RANK = 1 ] && exit 7; exec sleep 1000"], user)
    code, _, err = job.finish()
    assert code == 7 and "rank 1 on host" in closing_line(err)
    job = isolated(["-np", 2, "sleep", 1000], user)
    job.wait_for_pids("sleep", 2)
    job.process.send_signal(signal.SIGINT)
    assert job.finish()[0] == 130
