"""Real ranks under the installed aiaccrun: coming together, working, disagreeing, dying, and what every other rank then says.
Times are asserted at ten times their bound and printed."""
import os
import pathlib
import re
import resource
import subprocess
import time

import pytest

from launcher_support import TOLERANCE, Job, run, users, with_longer_limits

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("AIACC_", "OMPI_", "PMI", "SLURM_"))}


def said(stderr):
    """What was said, but for the note that ranks share cores, which depends on the machine, the warning of every plain job over
    several hosts, and what ranks did last before an error that a test is about."""
    usual = ["[AR-BUSY]", "travel unprotected between its", "The last operations of this rank:"]
    return "".join(line for line in stderr.splitlines(True) if not any(words in line for words in usual))


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_init_barrier_finalize(rank, user, ranks):
    code, out, err = run("-np", ranks, rank, "barrier", user=user)
    assert (code, out, said(err)) == (0, "", "")


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_sums_of_all_sizes(rank, ranks):
    code, out, err = run("-np", ranks, rank, "loop")
    assert (code, out, said(err)) == (0, "", "")


def test_two_programs_one_after_the_other_are_the_same_rank(rank):
    code, _, err = run("-np", 3, "sh", "-c", f"{rank} barrier; {rank} loop 1")
    assert (code, said(err)) == (0, "")


def test_a_program_below_a_shell_and_a_launcher_script_is_the_rank(rank):
    code, _, err = run("-np", 2, "sh", "-c", f"sh -c '{rank} barrier; exit $?'; exit $?")
    assert (code, said(err)) == (0, "")


@pytest.mark.parametrize("user", users())
def test_256_ranks_under_a_soft_limit_of_1024_descriptors(rank, user):
    def limit():
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))

    job = Job(["-np", 256, "--oversubscribe", rank, "barrier"], user=user, preexec_fn=limit)
    code, out, err = job.finish()
    print(f"256 ranks as {user}: {job.took:.2f} s")
    assert (code, out) == (0, ""), err[-2000:]


@pytest.mark.parametrize("how, says", [("kill", "killed by signal 9"), ("3", "exited with status 3")])
def test_survivors_name_the_dead(rank, how, says):
    code, _, err = run("-np", 3, rank, "death", how)
    assert code == (137 if how == "kill" else 3)
    survivors = re.findall(r"survivor (\d): (.*), rank (-?\d+): (.*)", err)
    assert {survivor[0] for survivor in survivors} == {"0", "2"}, err
    for _, name, about, sentence in survivors:
        assert name == "peer failed" and about == "1" and "rank 1" in sentence and says in sentence, err


@pytest.mark.parametrize("root", [0, 1])
def test_a_rank_that_dies_among_broadcasts_is_named_by_who_reads_and_by_who_gives(rank, root):
    code, _, err = run("-np", 3, rank, "broadcasts", root)
    assert code == 137, err
    survivors = re.findall(r"survivor (\d): (.*), rank (-?\d+): (.*)", err)
    assert {survivor[0] for survivor in survivors} == {"0", "2"}, err
    for _, name, about, sentence in survivors:
        assert name == "peer failed" and about == "1" and "rank 1" in sentence, err


def test_ranks_that_disagree_are_told_on_every_rank(rank):
    code, _, err = run("-np", 3, rank, "mismatch")
    assert code == 0, err
    sentences = re.findall(r"rank \d: (.*)", err)
    assert len(sentences) == 3 and len(set(sentences)) == 1
    assert "10 fp32" in sentences[0] and "20 fp32" in sentences[0]


def test_exit_0_without_finalize_is_an_error(rank):
    code, _, err = run("-np", 2, rank, "no-finalize")
    assert code == 1 and "finalize" in err


def test_a_rank_that_never_initialises_is_named(rank):
    code, _, err = run("-np", 2, rank, "never")
    assert code != 0
    assert "rank 1" in err, err


def test_sizes_that_disagree_get_one_sentence(rank):
    code, _, err = run("-np", 2, rank, "wrong-size")
    assert code != 0
    assert "rank 1 says that the job has 7 ranks, and aiaccrun started 2" in err


def test_a_second_claim_of_a_rank_names_both_processes(rank):
    code, _, err = run("-np", 2, rank, "second-claim", rank)
    assert code == 0, err
    assert re.search(r"process \d+ claims rank 0, which process \d+ already is", err), err


def test_a_forked_child_is_told_that_it_is_no_rank(rank):
    code, _, err = run("-np", 2, rank, "forked")
    assert code == 0, err
    assert err.count("forked child") == 2


@pytest.mark.parametrize("variables, named", [
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE=2"),
    ({"PMI_RANK": "1", "PMI_SIZE": "4"}, "PMI_SIZE=4"),
    ({"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "8"}, "SLURM_NTASKS=8"),
    ({"WORLD_SIZE": "2", "RANK": "0"}, "WORLD_SIZE=2"),
    ({"AIACC_RENDEZVOUS": "a:1"}, "AIACC_RENDEZVOUS=a:1"),
    ({"AIACC_AGENT": "local:no-such-agent", "AIACC_RANK": "0", "AIACC_SIZE": "2"}, "AIACC_AGENT=local:no-such-agent"),
])
def test_a_way_of_being_started_that_leads_nowhere_is_named(rank, variables, named):
    done = subprocess.run([rank, "barrier"], env={**CLEAN, **variables}, capture_output=True, text=True, timeout=60)
    assert done.returncode >= 100 and named in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_alone_is_a_world_of_one(rank):
    assert subprocess.run([rank, "loop"], env=CLEAN, timeout=60).returncode == 0
    foreign = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "AIACC_SINGLETON": "1"}
    assert subprocess.run([rank, "loop"], env={**CLEAN, **foreign}, timeout=60).returncode == 0


def test_an_unknown_variable_is_warned_of_once(rank):
    code, _, err = run("-np", 3, rank, "barrier", env={"AIACC_TIMEUOT": "5s"})
    assert code == 0
    assert said(err).count("AIACC_TIMEUOT") == 1 and "AIACC_TIMEOUT" in err, err


def test_a_bad_setting_is_refused(rank):
    done = subprocess.run([rank, "barrier"], env={**CLEAN, "AIACC_TIMEOUT": "soon"}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 101 and "AIACC_TIMEOUT" in done.stderr and "soon" in done.stderr


def cpu_seconds(pid):
    fields = pathlib.Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_64_ranks_that_wait_cost_nothing(rank, tmp_path):
    job = Job(["-np", 64, "--oversubscribe", rank, "idle", tmp_path / "over"])
    pids = job.wait_for_pids("rank", 64)
    job.process.stdout.readline()

    def share_within(seconds):
        before, began = sum(map(cpu_seconds, pids)), time.monotonic()
        time.sleep(seconds)
        return (sum(map(cpu_seconds, pids)) - before) / (time.monotonic() - began)
    time.sleep(2)  # the last ones are still on their way to sleep
    share = with_longer_limits(share_within, lambda share: share < 0.01 * TOLERANCE, 8)
    (tmp_path / "over").touch()
    code, _, err = job.finish()
    print(f"64 waiting ranks used {100 * share:.2f} % of a core")
    assert code == 0, err
    assert share < 0.01 * TOLERANCE
