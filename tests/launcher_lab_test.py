"""Jobs on hosts that share nothing but their network: names, addresses, processes and memory are their own."""
import ast
import contextlib
import os
import pathlib
import re
import signal
import time

import pytest

import namespace_hosts
from launcher_support import Job, closing_line, compiled, with_longer_limits
from namespace_hosts import Hosts

pytestmark = pytest.mark.skipif(bool(namespace_hosts.unavailable()), reason=str(namespace_hosts.unavailable()))
HELLO = ["/usr/bin/python3", pathlib.Path(os.environ["AIACC_SOURCE"], "tests/programs/say_hello.py")]
RANK = compiled("tests/programs/job_rank.c")
BOUND = 5
WHO = ["aiaccrun", "group", "starter", "keeper", "agent", "rank"]


@pytest.fixture(scope="module")
def lab():
    with Hosts(3) as hosts:
        yield hosts


def on(lab, hosts, *arguments, **kwargs):
    return Job(["--launch-agent", lab.enter, "-H", hosts, *arguments], **kwargs)


def test_ranks_run_on_the_hosts_of_the_list(lab):
    code, out, err = on(lab, "h0:2,h1:1,h2:1", "sh", "-c", "echo $RANK $(hostname) $MASTER_ADDR").finish()
    assert code == 0, err
    master = lab.address(0)
    assert sorted(out.splitlines()) == [f"0 h0 {master}", f"1 h0 {master}", f"2 h1 {master}", f"3 h2 {master}"]


def test_ranks_that_finalize_become_ranks_again(lab):
    code, out, err = on(lab, "h0:2,h1:1", "--quiet", "-x", "AIACC_ENCRYPT=none", RANK, "again").finish()
    assert (code, out, err) == (0, "", "")


def test_ranks_learn_the_addresses_of_every_host(lab):
    code, out, err = on(lab, "h0,h1,h2", *HELLO, "leave").finish()
    assert code == 0, err
    for line in out.splitlines():
        told = ast.literal_eval(line.removeprefix("welcome "))
        assert told["hosts"] == [(f"h{i}", [lab.address(i), lab.address(i, 6)]) for i in range(3)]


def test_the_launcher_on_one_of_the_hosts(lab):
    job = Job(["--launch-agent", lab.enter, "-H", "h0,h1", "sh", "-c", "echo $RANK $(hostname) $HOME"],
              before=lab.head("h0", []), env={"HOME": "/ours"})
    code, out, err = job.finish()
    assert code == 0, err
    assert sorted(out.splitlines()) == ["0 h0 /ours", "1 h1 /ours"] or sorted(out.splitlines())[1].startswith("1 h1 ")


@pytest.mark.parametrize("where, code, id", [("program", 127, "AR-PROGRAM"), ("directory", 2, "AR-WDIR")])
def test_what_one_host_of_three_lacks(lab, tmp_path, where, code, id):
    tmp_path.chmod(0o755)
    folder = tmp_path / "tools" / "inner"
    folder.mkdir(parents=True)
    program = folder / "program"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    lab.run(*lab.on("h2", ["mount", "-t", "tmpfs", "none", tmp_path / "tools"]))
    try:
        if where == "program":
            result = on(lab, "h0,h1,h2", program).finish()
        else:
            result = on(lab, "h0,h1,h2", "--wdir", folder, "sh", "-c", "echo ran").finish()
    finally:
        lab.run(*lab.on("h2", ["umount", tmp_path / "tools"]))
    assert result[0] == code and result[1] == "", "no rank ran anywhere"
    assert id in closing_line(result[2]) and "host h2:" in closing_line(result[2]) and str(folder) in closing_line(result[2])


def kill(job, who, rank):
    if who == "aiaccrun":
        job.process.kill()
    elif who == "group":
        os.killpg(job.process.pid, signal.SIGKILL)
    else:
        name = {"starter": "nsenter", "keeper": "aiacc-keeper", "agent": "aiacc-agent", "rank": rank}[who]
        os.kill(job.pids(name)[-1], signal.SIGKILL)


@pytest.mark.parametrize("who", WHO)
def test_nothing_outlives_the_job_on_any_host(lab, who):
    job = on(lab, "h0:2,h1:2", "--kill-grace", 1, "sh", "-c", "setsid sleep 1000 & sleep 1000")
    job.wait_for_pids("sleep", 8)
    kill(job, who, "sh")
    print(f"{who}: all gone after {job.gone_within(BOUND):.2f} s")


@pytest.mark.parametrize("mode, ready", [("loop", "looping"), ("leave", "leaving")])
@pytest.mark.parametrize("who", WHO)
def test_killed_in_the_middle_of_an_allreduce_and_while_finalizing(lab, who, mode, ready):
    job = on(lab, "h0:2,h1:1", "--kill-grace", 1, RANK, mode)
    for _ in range(3):
        while job.process.stdout.readline().decode().strip() != ready:
            pass  # the first may have left before the last says so
    kill(job, who, "job_rank")
    print(f"{who} / {mode}: all gone after {job.gone_within(BOUND):.2f} s")


def test_two_hosts_at_once_in_the_middle_of_an_allreduce(lab):
    job = on(lab, "h0,h1,h2", "--kill-grace", 1, RANK, "loop")
    for _ in range(3):
        job.process.stdout.readline()
    for pid in job.pids("aiacc-agent")[:2]:
        with contextlib.suppress(ProcessLookupError):  # the job may be ending for the first one already
            os.kill(pid, signal.SIGKILL)
    code, _, err = job.finish()
    assert code == 125 and "AR-HOST-LOST" in closing_line(err), err


def test_a_lost_agent_is_the_failure_and_not_a_rank_that_hears_of_it_first(lab):
    """The keeper of the killed agent is stopped, and the kernel ends only the shell around its rank: until the lease of that host
    ends nobody but this rank knows, which tells the other one. That one exits long before aiaccrun knows why."""
    job = on(lab, "h0,h1", "--kill-grace", 1, "-x", "AIACC_ENCRYPT=none", "sh", "-c", f"{RANK} loop; exit $?", env={"AIACC_LEASE": "2s"})
    for _ in range(2):
        job.process.stdout.readline()
    agent = job.pids("aiacc-agent")[0]
    keeper = int(pathlib.Path(f"/proc/{agent}/stat").read_text().rsplit(")", 1)[1].split()[1])
    assert keeper in job.pids("aiacc-keeper")
    os.kill(keeper, signal.SIGSTOP)
    os.kill(agent, signal.SIGKILL)
    said = job.remark()
    assert "the agent of host" in said, said
    time.sleep(0.5)  # that it exits is known by then, unless this machine is slow: the verdict may only be right then
    with contextlib.suppress(ProcessLookupError):
        os.kill(keeper, signal.SIGCONT)
    code, _, err = job.finish()
    assert code == 125 and "AR-HOST-LOST" in closing_line(err), err


@pytest.mark.parametrize("hosts", ["h0,h1", "h0:2,h1:1,h2:3", "h0:1,h2:2"])
def test_a_job_that_initialises_and_finalizes(lab, hosts):
    code, out, err = on(lab, hosts, RANK, "run").finish()
    assert (code, out) == (0, ""), err


def test_one_program_after_another(lab):
    code, _, err = on(lab, "h0:2,h1", "sh", "-c", f"{RANK} run && {RANK} run").finish()
    assert code == 0, err


@pytest.mark.parametrize("mode, rank, expected, what", [("fail", 2, 7, "exited with status 7"),
                                                        ("crash", 0, 139, "was killed by signal 11")])
def test_survivors_on_every_host_are_told_who_died(lab, mode, rank, expected, what):
    job = on(lab, "h0:2,h1:2", RANK, mode, rank)
    code, _, err = job.finish()
    print(f"ended after {job.took:.2f} s")
    assert code == expected and f"rank {rank} on host h{rank // 2} {what}" in closing_line(err), err


@pytest.mark.parametrize("mode, what", [(["vanish"], "without finalize"), (["skip", 2], "never initialised")])
def test_1_ranks_in_a_wrong_state(lab, mode, what):
    code, _, err = on(lab, "h0:2,h1", RANK, *mode).finish()
    assert code == 1 and what in closing_line(err)


def test_a_host_that_goes_down(lab):
    with Hosts(2) as hosts:
        job = on(hosts, "h0,h1", "sleep", 1000)
        job.wait_for_pids("sleep", 2)
        first = int(pathlib.Path(f"/proc/{hosts.pids['h1']}/stat").read_text().split()[0])
        os.kill(first, signal.SIGKILL)  # the kernel ends everything on it
        code, _, err = job.finish()
        assert code == 125 and "host h1 was lost" in closing_line(err), err


@pytest.mark.parametrize("how", ["data", "integrity"])
def test_ranks_that_protect_their_messages_train_together(lab, how):
    code, out, err = on(lab, "h0:2,h1:1", "-x", f"AIACC_ENCRYPT={how}", RANK, "run").finish()
    assert (code, out) == (0, ""), err
    assert "unprotected" not in err


def test_a_job_over_several_hosts_that_nothing_protects_says_so_once(lab):
    said = "the messages of this job travel unprotected between its 2 hosts"
    _, _, err = on(lab, "h0:2,h1:1", RANK, "run").finish()
    assert err.count(said) == 1 and "AIACC_ENCRYPT=integrity" in err, err
    _, _, err = on(lab, "h0:2,h1:1", "-x", "AIACC_ENCRYPT=none", RANK, "run").finish()
    assert said not in err
    _, _, err = on(lab, "h0:2", RANK, "run").finish()
    assert said not in err


def test_a_rank_that_encrypts_and_one_that_does_not_say_so(lab):
    code, _, err = on(lab, "h0,h1", "sh", "-c",
                      f"if [ $AIACC_RANK = 1 ]; then export AIACC_ENCRYPT=data; fi; exec {RANK} run").finish()
    assert code == 3
    said = "rank 1 on host h1 encrypts its messages and rank 0 on host h0 does not: give AIACC_ENCRYPT the same value on all ranks"
    # Both ends find it. One of them may hear that the other has exited before its own end of the connection is refused.
    assert err.count(said) >= 1, err


def test_a_network_that_spares_the_agents_is_named(lab):
    """The agents' connections go another way; the ranks of the two hosts do not reach each other."""
    with Hosts(2) as hosts:
        hosts.cut_at_switch("h1")

        def attempt(seconds):
            settings = ["-x", f"AIACC_TIMEOUT={2500 * seconds}ms", "-x", f"AIACC_LATE_AFTER={seconds}s"]
            return on(hosts, "h0,h1", *settings, RANK, "run").finish(timeout=200)

        # Whichever says so first; the other may be ended before it does.
        ways = [r"has waited for [.\d]+ s; .*" + OBSTACLE, r"was not complete after [.\d]+ s; .*" + OBSTACLE]
        code, _, err = with_longer_limits(attempt, lambda ended: all(re.search(way, ended[2]) for way in ways), 2)
        assert code == 3 and all(re.search(way, err) for way in ways), err


OBSTACLE = r"rank (0 on host h0 cannot reach rank 1 on host h1|1 on host h1 cannot reach rank 0 on host h0) .*tcp:10\.77\.0\.[12]:"


@pytest.mark.parametrize("comes_back", [True, False], ids=["comes-back", "stays-away"])
def test_a_network_that_is_cut_under_a_connection_in_use(tmp_path, comes_back):
    """Both ranks have bytes under way, which the kernel alone would try to deliver for a quarter of an hour."""
    def attempt(seconds):
        done = tmp_path / f"done-{seconds}"
        with Hosts(2) as hosts:
            settings = ["-x", "AIACC_ENCRYPT=none", "-x", "AIACC_LEASE=1s", "-x", f"AIACC_LATE_AFTER={seconds}s", "-x",
                        f"AIACC_TIMEOUT={(3000 if comes_back else 1500) * seconds}ms"]
            job = on(hosts, "h0,h1", *settings, RANK, "until", done)
            looping = [job.process.stdout.readline() for _ in range(2)]
            hosts.cut_at_switch("h1")
            said = job.remark()
            if comes_back:
                hosts.mend_at_switch("h1")
                done.touch()
            code, _, err = job.finish(timeout=200)
        # On a slow machine the time is over before the network is back, or a host is lost.
        assert code == 3 or comes_back and code == 0 or code == 125 and "AR-HOST-LOST" in closing_line(err), said + err
        late = looping == [b"looping\n"] * 2 and re.search(r"has waited for [.\d]+ s; .*" + OBSTACLE, said)
        ended = comes_back or re.search(r"was not complete after [.\d]+ s; .*" + OBSTACLE, err)
        return code == (0 if comes_back else 3) and bool(late) and bool(ended), said + err
    is_well, err = with_longer_limits(attempt, lambda ended: ended[0], 5)
    assert is_well, err


def test_a_network_that_stays_cut_ends_the_job_as_a_lost_path(tmp_path):
    """The agents' connections go another way, so that nobody is lost."""
    ends = r"rank 0 on host h0 \(.*tcp:10\.77\.0\.1:\d+.*\) and rank 1 on host h1 \(.*tcp:10\.77\.0\.2:\d+.*\)"
    with Hosts(2) as hosts:
        settings = ["-x", "AIACC_ENCRYPT=none", "-x", "AIACC_LEASE=1s", "-x", "AIACC_PATH_TIMEOUT=8s", "-x", "AIACC_LATE_AFTER=600s"]
        job = on(hosts, "h0,h1", *settings, RANK, "until", tmp_path / "done")
        for _ in range(2):
            assert job.process.stdout.readline() == b"looping\n"
        hosts.cut_at_switch("h1")
        said = job.remark()
        assert re.search(rf"The path between {ends} has been broken for \d+ s: .*tcp:10", said), said
        assert "AIACC_PATH_TIMEOUT" in said
        code, _, err = job.finish()
        assert code == 3, err
        line = closing_line(err)
        assert re.search(f"the path between {ends} was broken for .* s .AIACC_PATH_TIMEOUT.: .*; rank [01] on host h[01] exited with status 3", line), err
        assert "[AR-PATH-LOST]" in line and "had lost rank" not in line, err


def test_a_hundred_hosts_are_no_queue(lab):
    """Each takes half a second to come up; one after the other they would take a minute."""
    slow = lab.folder / "slow"
    slow.write_text(f'#!/bin/sh\nsleep 0.5; host=$1; shift; exec {lab.enter} h0 "$@"\n')
    slow.chmod(0o755)
    names = ",".join(f"n{number}" for number in range(100))
    began = time.monotonic()
    code, out, err = Job(["--launch-agent", slow, "-H", names, "sh", "-c", "echo $RANK"]).finish(timeout=300)
    print(f"100 hosts: {time.monotonic() - began:.2f} s")
    assert code == 0, err
    assert sorted(map(int, out.split())) == list(range(100))
