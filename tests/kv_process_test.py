"""The key-value store on real ranks, on one host and on hosts that share nothing but a network (tests/namespace_hosts.py)."""
import re

import pytest

import namespace_hosts
from launcher_support import Job, users
from python_support import ENVIRONMENT, PACKAGE_PROGRAMS, check_job, python_job

NO_HOSTS = namespace_hosts.unavailable()
PYTHON = "/usr/bin/python3"


@pytest.fixture(scope="module")
def hosts():
    if NO_HOSTS is not None:
        yield None
        return
    with namespace_hosts.Hosts(3) as made:
        yield made


def run(hosts, where, *words):
    program = [PYTHON, PACKAGE_PROGRAMS / "kvstore.py", *words]
    if isinstance(where, int):
        return Job(["-np", where, "--kill-grace", "20", *program], env=ENVIRONMENT).finish()
    if hosts is None:
        pytest.skip(NO_HOSTS)
    exported = [word for name, value in ENVIRONMENT.items() for word in ("-x", f"{name}={value}")]
    return Job(["--launch-agent", hosts.enter, "-H", where, "--kill-grace", "20", *exported, *program]).finish()


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_values_on_one_host(user, ranks):
    check_job(PYTHON, ranks, "kvstore.py", user=user, env={"AIACC_LOG": "error"})


@pytest.mark.parametrize("where, ranks", [("h0:1,h1:1", 2), ("h0:2,h1:1,h2:1", 4)])
def test_values_over_hosts(hosts, where, ranks):
    code, out, err = run(hosts, where)
    assert (code, out) == (0, "all is well\n" * ranks), err


@pytest.mark.parametrize("call", ["push", "pushpull"])
@pytest.mark.parametrize("where, ranks", [(2, 2), (4, 4), ("h0:1,h1:1", 2), ("h0:2,h1:1,h2:1", 4)])
def test_survivors_name_the_dead(hosts, where, ranks, call, tmp_path):
    code, out, err = run(hosts, where, "death", call, tmp_path)
    assert code == 137, err
    assert sorted(out.splitlines()) == [f"rank {rank} names rank {ranks - 1}" for rank in range(ranks - 1)], err


@pytest.mark.parametrize("where, ranks", [(4, 4), ("h0:1,h1:1,h2:2", 4)])
def test_a_server_with_a_replica_may_die(hosts, where, ranks):
    code, out, err = run(hosts, where, "replicas")
    assert (code, out) == (137, "all is well\n" * (ranks - 1)), err
    assert "goes on without rank 0: rank 1 serves its values" in err, err


def test_after_a_death_the_updater_changes_and_states_are_saved_and_loaded(tmp_path):
    state = tmp_path / "state"
    command = ["--quiet", "-np", 4, "--min-np", 3, PYTHON, PACKAGE_PROGRAMS / "kvstore.py"]
    code, out, err = Job([*command, "afterwards", state], env=ENVIRONMENT).finish()
    assert code == 0 and "goes on without rank 0: rank 1 serves its values" in err, err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.0", "state.1"]
    code, _, err = Job([*command, "again", state, *out.split()], env=ENVIRONMENT).finish()
    assert code == 0, err


def test_servers_may_die_one_after_the_other(tmp_path):
    told = tmp_path / "told"
    job = Job(["--quiet", "-np", 5, "--min-np", 3, PYTHON, PACKAGE_PROGRAMS / "kvstore.py", "sequence", told], env=ENVIRONMENT)
    seen, copied = "", set()
    for line in job.process.stderr:  # ends with the job, which has a limit of its own
        seen += line.decode()
        if found := re.search(r"has two replicas again of what rank (\d) serves: the other one is on rank (\d)", line.decode()):
            copied.add(found.groups())
        if copied == {("1", "2"), ("2", "1")}:
            told.touch()
            break
    code, out, err = job.finish()
    assert (code, out) == (0, "all is well\n" * 3), seen + err
    assert "goes on without rank 0: rank 1 serves its values" in seen and "goes on without rank 1: rank 2 serves its values" in seen + err


def test_ctrl_c_ends_a_server_that_waits_for_workers():
    program = """
import os, signal, threading, aiacc
aiacc.init()
store = aiacc.KVStore(servers=[1], workers=[0])
if aiacc.rank() == 0: signal.pause()
try:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    store.free()
except KeyboardInterrupt: print("interrupted", flush=True); raise
"""
    code, out, err = python_job(PYTHON, 2, program, env={"AIACC_LOG": "error"}, options=["--timeout", 60])
    assert (code, out) == (130, "interrupted\n"), (code, out, err)
