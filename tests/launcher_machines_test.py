"""Names of one machine in a list of hosts: it becomes one host, and only where its agents prove that it is one."""
import ast
import os
import pathlib
import re
import signal
import socket

import pytest

import namespace_hosts
from launcher_hosts_support import ENTER, FOLDER, HELLO, RELAY, script
from launcher_support import Job, closing_line, run, users

PLACE = 'echo "$AIACC_RANK $AIACC_SIZE $AIACC_HOST_INDEX $AIACC_LOCAL_RANK $AIACC_LOCAL_SIZE"'
LOGGED = script("logged", f'echo "$1" >>{FOLDER}/log; shift; exec "$@"\n')


def on(hosts, *arguments, by=ENTER, **kwargs):
    return Job(["--oversubscribe", "--launch-agent", by, "-H", hosts, *arguments], **kwargs)  # whatever cores there are


def notice(*names):
    listed = ", ".join(names[:-1]) + " and " + names[-1]
    return f"aiaccrun: hosts {listed} are the same machine; their slots are added up [AR-SAME-MACHINE]\n"


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("by", [ENTER, RELAY], ids=["enter", "relay"])
def test_two_names_are_one_host_with_the_slots_of_both(by, user):
    code, out, err = on("c01:2,c01.cluster.local:2", "sh", "-c", PLACE, by=by, user=user).finish()
    assert code == 0
    assert sorted(out.splitlines()) == [f"{rank} 4 0 {rank} 4" for rank in range(4)]
    assert err == notice("c01", "c01.cluster.local")


def test_its_ranks_share_memory():
    code, out, err = on("a:1,b:2", *HELLO, "leave").finish()
    assert code == 0 and err == notice("a", "b")
    told = [ast.literal_eval(line.removeprefix("welcome ")) for line in out.splitlines()]
    assert len({one["nonce"] for one in told}) == 1 and {tuple(one["hosts_of_ranks"]) for one in told} == {(0, 0, 0)}
    assert {one["local_rank"] for one in told} == {0, 1, 2} and {one["secret"] for one in told} == {""}


def test_each_rank_has_cores_of_its_own():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core cannot be shared out")
    code, out, err = on("a,b", "--report-bindings", "sh", "-c", "grep Cpus_allowed_list /proc/self/status").finish()
    assert code == 0, err
    first, second = ({line} for line in out.splitlines())
    assert first != second, "both ranks are bound to the same cores"


def test_another_name_of_this_host():
    """The agent that needs no starter is kept, and each other machine of the list stays what it is."""
    code, out, err = on("me:1,localhost:1,again:2", "sh", "-c", PLACE).finish()
    assert code == 0
    assert sorted(out.splitlines()) == [f"{rank} 4 0 {rank} 4" for rank in range(4)]
    assert err == notice(socket.gethostname(), "me", "again")


def test_starters_of_names_that_are_left_out_end_in_order():
    log = FOLDER / "log"
    log.unlink(missing_ok=True)
    log.touch()
    log.chmod(0o666)
    job = on("a:2,b:1", "sh", "-c", PLACE, by=LOGGED)
    code, out, err = job.finish()
    assert code == 0 and err == notice("a", "b")
    assert sorted(log.read_text().split()) == ["a", "a", "b"], "both are reached, then one"


def test_more_ranks_than_hosts_in_truth():
    code, out, err = on("a,b", "-np", 2, "-N", 1, "echo", "ran").finish()
    assert (code, out) == (2, "")
    assert re.fullmatch(r"aiaccrun: 2 ranks with -N 1 need 2 hosts, and there is one; [^\n]* \[AR-RANKS\]\n", err)


def test_separate_hosts_leaves_them_apart():
    code, out, err = on("a,b", "--separate-hosts", *HELLO, "leave").finish()
    assert (code, err) == (0, "")
    told = [ast.literal_eval(line.removeprefix("welcome ")) for line in out.splitlines()]
    assert len({one["nonce"] for one in told}) == 2 and told[0]["hosts_of_ranks"] == [0, 1]


@pytest.mark.parametrize("user", users())
def test_isolated_ranks_of_one_machine(user):
    code, out, err = on("a,b", "--isolate", "sh", "-c", "readlink /proc/self/ns/pid", user=user).finish()
    if code == 2 and "AR-ISOLATE" in err:
        pytest.skip(err)
    assert code == 0 and err == notice("a", "b")
    assert len(set(out.splitlines())) == 1, "one host, one namespace"


def test_dry_run_asks_nobody():
    code, out, err = run("--dry-run", "--launch-agent", "/no/such/enter", "-H", "a:2,b:2", "true")
    assert (code, err) == (0, "")
    assert "  a: 2 ranks (0-1), 2 slots\n" in out and "a machine each" in out


def test_a_failure_after_the_names_were_joined():
    code, out, err = on("a,b", "sh", "-c", "exit $RANK").finish()
    assert code == 1 and err.startswith(notice("a", "b"))
    assert re.search(r"rank 1 on host a exited with status 1 ", closing_line(err))


def test_a_signal_ends_the_host_that_was_joined():
    job = on("a,b", "sleep", 1000)
    job.wait_for(lambda: len(job.pids("sleep")) == 2, "the ranks")
    assert len(job.pids("aiacc-agent")) == 1, "one machine has one agent"
    job.process.send_signal(signal.SIGINT)
    code, _, err = job.finish()
    assert code == 130 and err.startswith(notice("a", "b"))


@pytest.mark.skipif(bool(namespace_hosts.unavailable()), reason=str(namespace_hosts.unavailable()))
def test_hosts_of_one_kernel_that_share_no_memory_stay_apart():
    with namespace_hosts.Hosts(2) as lab:
        (lab.folder / "h1.example.org").write_text(f"{lab.pids['h1']}\n")
        code, out, err = on("h0:1,h1:1,h1.example.org:2", "sh", "-c", "echo $RANK $(hostname) $AIACC_HOST_INDEX", by=lab.enter).finish()
        assert code == 0 and err == notice("h1", "h1.example.org")
        assert sorted(out.splitlines()) == ["0 h0 0", "1 h1 1", "2 h1 1", "3 h1 1"]


# Beside a container with this one's network: a root, or memory, of its own.
OTHERS = {"files": "unshare --mount --propagation private sh -c 'mount -t tmpfs none /dev/shm && exec \"$@\"' sh",
          "names": "unshare --uts", "ipc": "unshare --ipc"}


@pytest.mark.skipif(bool(namespace_hosts.unavailable()), reason=str(namespace_hosts.unavailable()))
@pytest.mark.parametrize("what", OTHERS)
def test_containers_that_share_a_network_stay_apart(what):
    container = script(f"container-{what}", f'name=$1; shift; case $name in b) exec {OTHERS[what]} "$@";; esac; exec "$@"\n')
    code, out, err = on("a,b,c", "sh", "-c", "echo $AIACC_RANK $AIACC_HOST_INDEX", by=container).finish()
    assert code == 0 and err == notice("a", "c")
    assert sorted(out.splitlines()) == ["0 0", "1 0", "2 1"]
