"""Jobs in allocations of a real Slurm, on hosts of namespaces. There is no sshd: other hosts are reached by srun or not at all."""
import collections
import hashlib
import os
import re
import signal
import tempfile
import time

import pytest

from launcher_slurm import SlurmHosts, unpacked
from launcher_support import AIACCRUN, STAGE, TOLERANCE, closing_line
from unpacked_packages import running

WHERE = 'echo "$AIACC_RANK $(hostname) ${SLURMD_NODENAME-} $SLURM_NTASKS ${SLURM_PROCID-none} ${SLURM_STEP_ID-none}"'


@pytest.fixture(scope="module")
def slurm():
    with running("slurm", unpacked, SlurmHosts) as slurm:
        yield slurm


@pytest.fixture(autouse=True)
def nothing_is_left(slurm):
    yield
    slurm.wait_for_nodes()


def test_hosts_and_slots_are_those_of_the_job(slurm):
    code, out, err = slurm.job(["-N3", "-n8"], "sh", "-c", WHERE).finish()
    assert code == 0, err
    lines = sorted(line.split(" ") for line in out.splitlines())
    assert [int(line[0]) for line in lines] == list(range(8))
    hosts = [line[1] for line in lines]
    assert hosts == sorted(hosts) and set(hosts) == {"h0", "h1", "h2"} and max(collections.Counter(hosts).values()) <= 4
    for rank, host, node, tasks, process, step in lines:
        assert node == ("" if host == "h0" else host), (rank, "by srun")
        assert (tasks, process, step) == ("8", "none", "none"), (rank, "as the job has it, on each host alike")


def test_fewer_ranks_than_tasks_and_more(slurm):
    code, out, _ = slurm.job(["-N2", "-n4", "--ntasks-per-node=2"], "-np", 3, "sh", "-c", "hostname").finish()
    assert (code, sorted(out.split())) == (0, ["h0", "h0", "h1"])
    code, out, err = slurm.job(["-N2", "-n2"], "-np", 3, "true").finish()
    assert (code, out) == (2, "") and "3 ranks for 2 slots on 2 hosts (h0: 1, h1: 1), which Slurm job" in err


def test_a_node_that_is_named(slurm):
    code, out, err = slurm.job(["-N3"], "-H", "h2:2", "sh", "-c", WHERE).finish()
    assert code == 0, err
    assert sorted(line.split(" ")[1:3] for line in out.splitlines()) == [["h2", "h2"]] * 2


def test_variables_of_the_job_are_no_options_of_its_steps(slurm):
    """Of a job with devices, and of a user's habits: they would ask for what no step of a node can have, and label its output."""
    habits = {"SLURM_LABELIO": "1", "SLURM_GPUS": "9", "SLURM_CPUS_PER_TASK": "3", "SLURM_NTASKS_PER_NODE": "4", "SLURM_STDOUTMODE": "none"}
    job = slurm.job(["-N2", "-n2", "env", *(f"{name}={value}" for name, value in habits.items())], "sh", "-c",
                    'echo "$(hostname) $SLURM_GPUS $SLURM_CPUS_ON_NODE"')
    code, out, err = job.finish()
    assert (code, sorted(line.split()[:2] for line in out.splitlines())) == (0, [["h0", "9"], ["h1", "9"]]), err


def test_a_node_without_aiaccrun(slurm):
    slurm.on("h1", f"mount -t tmpfs none {STAGE}/bin")
    try:
        code, out, err = slurm.job(["-N2", "-n2"], "true").finish()
    finally:
        slurm.on("h1", f"umount {STAGE}/bin")
    assert (code, out) == (125, "") and "no agent on host h1: there is no aiaccrun on it" in err, err


def test_a_job_inside_of_a_rank_stays_on_its_host(slurm):
    code, out, err = slurm.job(["-N2", "-n2"], "sh", "-c", f"{AIACCRUN} -np 2 hostname").finish()
    assert (code, sorted(out.split())) == (0, ["h0", "h0", "h1", "h1"]), err


def test_an_allreduce_between_nodes(slurm):
    code, out, err = slurm.job(["-N3", "-n3", "--ntasks-per-node=1"], "-x", "AIACC_ENCRYPT=none", STAGE / "bin/aiacc-perf", "allreduce",
                               "-b", "1K", "-e", "1K", "-n", 3).finish()
    assert code == 0 and "# wrong elements    : 0 OK" in out, out + err


def test_input_and_output_of_any_bytes(slurm):
    given = os.urandom(3 << 20)
    with tempfile.TemporaryFile() as file:
        file.write(given)
        file.seek(0)
        code, out, err = slurm.job(["-N2"], "-H", "h1", "sha256sum", stdin=file).finish()
    assert code == 0 and out.split()[0] == hashlib.sha256(given).hexdigest(), err
    code, out, err = slurm.job(["-N2"], "-H", "h1", "sh", "-c", "yes 0123456789 | head -n 200000").finish()
    assert code == 0 and out == "0123456789\n" * 200000, err


def test_a_rank_that_fails_ends_the_job(slurm):
    code, out, err = slurm.job(["-N2", "-n2"], "sh", "-c", "test $AIACC_RANK = 0 && exec sleep 1000; exit 7").finish()
    assert (code, out) == (7, "") and "rank 1 on host h1 exited with status 7" in closing_line(err), err


def test_an_interrupt_ends_ranks_on_all_nodes(slurm):
    job = slurm.job(["-N2", "-n2"], "sh", "-c", "echo looping; exec sleep 1000", tell_process=True)
    with job.killed_after():
        launcher = int(job.process.stdout.readline())
        assert [job.process.stdout.readline() for _ in range(2)] == [b"looping\n"] * 2
    began = time.monotonic()
    os.kill(launcher, signal.SIGINT)
    code, _, err = job.finish()
    took = time.monotonic() - began
    print(f"ended {took:.2f} s after the interrupt")
    assert code == 130 and took < TOLERANCE * 2, err


def test_a_batch_script(slurm):
    """It runs on the first node of the job, whose name in Slurm aiaccrun knows from its environment."""
    said = slurm.batch(["-N2", "-n4", "--ntasks-per-node=2"], "{aiaccrun} --tag-output sh -c 'hostname'\n")
    assert sorted(line.split()[-1] for line in said.splitlines() if "AR-" not in line) == ["h0", "h0", "h1", "h1"], said


def test_a_node_that_does_not_answer(slurm):
    slurm.signal_node("h1", "STOP")
    try:
        code, out, err = slurm.job(["-N2", "-n2"], "true", env={"AIACC_INIT_TIMEOUT": "3s"}).finish()
    finally:
        slurm.signal_node("h1", "CONT")
    assert (code, out) == (125, "") and "h1" in closing_line(err), err


def test_the_plan_says_where_hosts_come_from(slurm):
    code, out, err = slurm.job(["-N2", "-n3"], "--dry-run", "true").finish()
    assert code == 0, err
    assert re.search(r"--host +h0:\d,h1:\d +Slurm job \d+\n", out), out
    assert "    agent: srun " in out and " --nodelist=h1 " in out
