"""Jobs over a real ssh to a real sshd, on hosts of namespaces."""
import os
import pathlib
import re
import signal
import time

import pytest

from launcher_sshd import SshHosts, unpacked
from launcher_support import closing_line, compiled
from unpacked_packages import running

BOUND = 5


@pytest.fixture(scope="module")
def hosts():
    with running("sshd", unpacked, SshHosts) as hosts:
        yield hosts


@pytest.fixture(autouse=True)
def fresh(hosts):
    """What a test changes of the client's files holds for itself only."""
    yield
    hosts.write_client(user_key="user", known=hosts.lab.names)


def refused(result, id, *parts):
    code, out, err = result
    assert (code, out) == (125, ""), err
    assert re.fullmatch(r"aiaccrun: [^\n]+ \[" + id + r"\]", err.splitlines()[0]), err
    for part in parts:
        assert part in err


def test_ranks_on_three_hosts(hosts):
    code, out, err = hosts.job("-H", "h0:1,h1:2,h2:1", "sh", "-c", "echo $RANK $(hostname) $PWD $MASTER_ADDR").finish()
    assert code == 0, err
    place = f"/ {hosts.lab.address(0)}"
    assert sorted(out.splitlines()) == [f"0 h0 {place}", f"1 h1 {place}", f"2 h1 {place}", f"3 h2 {place}"]


def test_a_name_and_an_address_of_one_machine(hosts):
    address = hosts.lab.address(1)
    with open(hosts.known, "a") as known:
        known.write(hosts.known.read_text().replace("h1 ", f"{address} "))
    code, out, err = hosts.job("--oversubscribe", "-H", f"h0,h1,{address}:2", "sh", "-c", "echo $RANK $(hostname)").finish()
    assert code == 0
    assert sorted(out.splitlines()) == ["0 h0", "1 h1", "2 h1", "3 h1"]
    assert err == f"aiaccrun: hosts h1 and {address} are the same machine; their slots are added up [AR-SAME-MACHINE]\n"


def test_output_and_exit_code_come_through(hosts):
    code, out, err = hosts.job("-H", "h1", "sh", "-c", "head -c 2000000 /dev/zero; echo bad >&2; exit 7").finish()
    assert (code, len(out)) == (7, 2000000) and err.startswith("bad\n") and "host h1 exited with status 7" in err


def test_what_a_login_prints_is_skipped(hosts):
    hosts.start("h1", 2201, 'Banner /etc/debian_version\nForceCommand echo "You have mail."; eval "$SSH_ORIGINAL_COMMAND"\n')
    hosts.known.write_text(hosts.known.read_text() + f"[h1]:2201 {(hosts.folder / 'h1_key.pub').read_text()}")
    listed = hosts.folder / "hosts"
    listed.write_text("h1 port=2201 slots=2\n")
    code, out, err = hosts.job("--hostfile", listed, "sh", "-c", "echo $RANK").finish()
    assert code == 0 and sorted(out.split()) == ["0", "1"] and "mail" not in err, err


def test_nobody_is_asked_for_a_password(hosts):
    hosts.write_client(user_key="h2", known=hosts.lab.names)
    refused(hosts.job("-H", "h1,h2", "true").finish(), "AR-SSH-AUTH", "hosts h1 and h2:", "ssh-copy-id", "Permission denied")


def test_an_unknown_host_key(hosts):
    hosts.write_client(user_key="user", known=[])
    refused(hosts.job("-H", "h1", "true").finish(), "AR-SSH-HOSTKEY", "host h1:", "log in once by hand")


def test_a_wrong_host_key(hosts):
    hosts.write_client(user_key="user", known=["h1"], key_of="h2")
    refused(hosts.job("-H", "h1", "true").finish(), "AR-SSH-HOSTKEY", "host h1:", "ssh-keygen -R h1")


def test_nothing_listens(hosts):
    listed = hosts.folder / "hosts"
    listed.write_text("h1 port=2\n")
    refused(hosts.job("--hostfile", listed, "true").finish(), "AR-SSH-REFUSED", "host h1:", "Connection refused")


def test_an_address_where_nobody_is(hosts):
    refused(hosts.job("-H", "10.77.0.99", "true").finish(), "AR-SSH-UNREACHABLE", "10.77.0.99")


def test_a_name_that_nobody_knows(hosts):
    refused(hosts.job("-H", "h7", "true").finish(), "AR-SSH-RESOLVE", "host h7:", "check the spelling")


@pytest.mark.parametrize("who", ["aiaccrun", "ssh", "keeper", "agent"])
def test_nothing_outlives_the_job(hosts, who):
    job = hosts.job("-H", "h1:2,h2:2", "--kill-grace", 1, "sh", "-c", "setsid sleep 1000 & sleep 1000")
    job.wait_for_pids("sleep", 8)
    if who == "aiaccrun":
        job.process.kill()
    else:
        os.kill(job.pids(who if who == "ssh" else f"aiacc-{who}")[-1], signal.SIGKILL)
    print(f"{who}: all gone after {job.gone_within(BOUND):.2f} s")


def test_interrupted(hosts):
    job = hosts.job("-H", "h1,h2", "sleep", 1000)
    job.wait_for_pids("sleep", 2)
    job.process.send_signal(signal.SIGINT)
    assert job.finish()[0] == 130


@pytest.mark.parametrize("program, lines", [(("sleep", 1000), 0), ((compiled("tests/programs/job_rank.c"), "loop"), 3)],
                         ids=["plain", "allreduce"])
def test_a_host_whose_plug_is_pulled(hosts, program, lines):
    job = hosts.job("-H", "h0:2,h2:1", "--kill-grace", 1, *program, env={"AIACC_LEASE": "2s"})
    for _ in range(lines):
        assert job.process.stdout.readline() == b"looping\n"
    job.wait_for_pids(pathlib.Path(program[0]).name, 3)
    hosts.lab.cut("h2")
    try:
        began = time.monotonic()
        err = job.process.communicate(timeout=60)[1].decode()
        print(f"aiaccrun returned after {time.monotonic() - began:.2f} s: {closing_line(err)}")
        # Beyond the cut they end by themselves, when their lease is over too.
        print(f"all gone after {job.gone_within(2 + BOUND):.2f} s more")
        assert job.process.returncode in (3, 125) and ("host h2" in err or "rank 2" in err), err
    finally:
        there = ["nsenter", "--target", str(hosts.lab.pids["h2"]), "--net", "--", "ip"]
        hosts.lab.run(*there, "link", "set", "eth0", "up")
        hosts.lab.run(*there, "-6", "address", "add", f"{hosts.lab.address(2, 6)}/64", "dev", "eth0", "nodad")  # lost with the link
