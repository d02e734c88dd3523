"""Jobs on hosts that share nothing but their network: names, addresses, processes and memory are their own."""
import ast
import os
import pathlib
import signal
import time

import pytest

import namespace_hosts
from launcher_support import AIACCRUN, Job, closing_line
from namespace_hosts import Hosts

pytestmark = pytest.mark.skipif(bool(namespace_hosts.unavailable()), reason=str(namespace_hosts.unavailable()))
HELLO = ["/usr/bin/python3", pathlib.Path(os.environ["AIACC_SOURCE"], "tests/programs/say_hello.py")]
BOUND = 5


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


@pytest.mark.parametrize("who", ["aiaccrun", "group", "starter", "keeper", "agent", "rank"])
def test_nothing_outlives_the_job_on_any_host(lab, who):
    job = on(lab, "h0:2,h1:2", "--kill-grace", 1, "sh", "-c", "setsid sleep 1000 & sleep 1000")
    job.wait_for_pids("sleep", 8)
    if who == "aiaccrun":
        job.process.kill()
    elif who == "group":
        os.killpg(job.process.pid, signal.SIGKILL)
    else:
        name = {"starter": "nsenter", "keeper": "aiacc-keeper", "agent": "aiacc-agent", "rank": "sh"}[who]
        os.kill(job.pids(name)[-1], signal.SIGKILL)
    print(f"{who}: all gone after {job.gone_within(BOUND):.2f} s")


def test_a_host_that_goes_down(lab):
    with Hosts(2) as hosts:
        job = on(hosts, "h0,h1", "sleep", 1000)
        job.wait_for_pids("sleep", 2)
        first = int(pathlib.Path(f"/proc/{hosts.pids['h1']}/stat").read_text().split()[0])
        os.kill(first, signal.SIGKILL)  # the kernel ends everything on it
        code, _, err = job.finish()
        assert code == 125 and "host h1 was lost" in closing_line(err), err


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
