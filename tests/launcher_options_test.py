"""What aiaccrun refuses before it starts anything: one sentence, a documented exit code, and nothing on standard output.
And what --dry-run says of what it would start."""
import os
import pathlib
import re
import socket
import subprocess

import pytest

AIACCRUN = pathlib.Path(os.environ["AIACC_STAGE"]) / "bin/aiaccrun"
CORES = len(os.sched_getaffinity(0))


def run(*words, **options):
    options.setdefault("env", {"PATH": "/usr/bin:/bin"})
    return subprocess.run([AIACCRUN, *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **options)


REFUSED = [
    # words, exit code, id, what the sentence must name
    (["-np", "2"], 2, "AR-USAGE", ["no program"]),
    ([], 2, "AR-USAGE", ["no program"]),
    (["./train"], 2, "AR-RANKS", ["-np"]),
    (["-np", "0", "true"], 2, "AR-RANKS", ["-np", "'0'"]),
    (["-np", "-1", "true"], 2, "AR-RANKS", ["-np", "'-1'"]),
    (["-np", "x", "true"], 2, "AR-RANKS", ["-np", "'x'"]),
    (["-np", "--tag-output", "true"], 2, "AR-VALUE", ["-np needs a value"]),
    (["-np", "2", "-n", "3", "true"], 2, "AR-OPTION", ["-np", "twice"]),
    (["--tag-ouput", "true"], 2, "AR-OPTION", ["--tag-ouput", "--tag-output"]),
    (["-nq", "4", "true"], 2, "AR-OPTION", ["-nq", "-np"]),
    (["--hostfle", "f", "true"], 2, "AR-OPTION", ["--hostfle", "--hostfile"]),
    (["--hostfile", "/no/such/file", "true"], 2, "AR-HOSTS", ["/no/such/file"]),
    (["-H", "a", "--hostfile", "f", "true"], 2, "AR-USAGE", ["--host ", "--hostfile"]),
    (["--tag-output=yes", "true"], 2, "AR-VALUE", ["--tag-output", "yes"]),
    (["-np", "8", "-H", "localhost:4", "true"], 2, "AR-SLOTS", ["8 ranks", "4 slots"]),
    (["-np", "2", "-H", "localhost", "true"], 2, "AR-SLOTS", ["2 ranks", "1 slot"]),
    (["-np", "7", "-N", "3", "true"], 2, "AR-RANKS", ["7 ranks", "3 hosts"]),
    (["-np", "8", "-H", "a:4,b:3", "true"], 2, "AR-SLOTS", ["8 ranks", "7 slots", "a: 4, b: 3"]),
    (["-H", "ann@a,bob@a", "true"], 2, "AR-HOSTS", ["host a", "ann", "bob"]),
    (["-H", "-oProxyCommand=x", "true"], 2, "AR-HOSTS", ["begins with a dash"]),
    (["-H", "localhost:x", "true"], 2, "AR-HOSTS", ["localhost:x"]),
    (["-H", "a:2:3", "true"], 2, "AR-HOSTS", ["'a:2:3' has colons and is no IPv6 address"]),
    (["-H", "größer", "true"], 2, "AR-HOSTS", ["'ö'"]),
    (["-np", "1", "no\nsuch\x1b[2J"], 127, "AR-PROGRAM", [r"no\x0asuch\x1b[2J"]),
    (["-np", "1", "-x", "NOT_SET_ANYWHERE", "true"], 2, "AR-VARIABLE", ["NOT_SET_ANYWHERE"]),
    (["-np", "1", "--bind-to", "cor", "true"], 2, "AR-VALUE", ["'cor'", "core"]),
    (["-np", "2", "--stdin", "2", "true"], 2, "AR-VALUE", ["--stdin names rank 2", "last rank of the job is 1"]),
    (["-np", "2", "--stdin", "all", "true"], 2, "AR-VALUE", ["--stdin", "'all'"]),
    (["-np", "1", "--timeout", "soon", "true"], 2, "AR-VALUE", ["--timeout", "'soon'"]),
    (["-np", "1", "--wdir", "/no/such/folder", "true"], 2, "AR-WDIR", ["/no/such/folder"]),
    (["-np", "1", "no-such-program"], 127, "AR-PROGRAM", ["no-such-program", "/usr/bin"]),
    (["-np", "1", "/no/such/program"], 127, "AR-PROGRAM", ["/no/such/program"]),
    (["-np", "1", "/etc/passwd"], 126, "AR-NOEXEC", ["/etc/passwd"]),
    (["-np", "2", "--servers", "2", "true"], 2, "AR-RANKS", ["--servers is 2", "2 ranks", "left to train"]),
    (["-np", "4", "--min-np", "2", "--servers", "2", "true"], 2, "AR-RANKS", ["--servers is 2", "goes on with 2 ranks (--min-np)"]),
    (["-np", "1", "true", ":", "-np", "1", "true"], 2, "AR-USAGE", ["':'", "several programs", "not supported"]),
    (["-np", "1", "-mca", "btl"], 2, "AR-VALUE", ["-mca needs two values"]),
    (["-np", "1", "/etc"], 126, "AR-NOEXEC", ["/etc", "directory"]),
]


@pytest.mark.parametrize("words, code, id, parts", REFUSED, ids=lambda value: " ".join(value) if isinstance(value, list) else None)
def test_refused_with_one_sentence(words, code, id, parts):
    refused = run(*words)
    assert refused.returncode == code, refused.stderr
    assert refused.stdout == ""
    assert re.fullmatch(r"aiaccrun: [^\n]+ \[" + id + r"\]\n", refused.stderr), refused.stderr
    for part in parts:
        assert part in refused.stderr


def test_program_without_permission(tmp_path):
    (tmp_path / "our-script").write_text("#!/bin/sh\n")
    refused = run("-np", "1", "./our-script", cwd=tmp_path)
    assert refused.returncode == 126 and "chmod +x" in refused.stderr


def test_program_is_looked_up_where_the_ranks_are(tmp_path):
    (tmp_path / "our-script").write_text("#!/bin/sh\n")
    (tmp_path / "our-script").chmod(0o755)
    assert "found at" in run("--dry-run", "-np", "1", "--wdir", str(tmp_path), "./our-script").stdout
    assert "found at" in run("--dry-run", "-np", "1", "-x", f"PATH={tmp_path}", "our-script").stdout
    assert "would end with 127" in run("--dry-run", "-np", "1", "our-script").stdout


def test_a_directory_that_was_removed(tmp_path):
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'

    def from_nowhere(*words):
        return subprocess.run(["sh", "-c", script, "sh", AIACCRUN, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    refused = from_nowhere("-np", "1", "true")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert re.fullmatch(r"aiaccrun: [^\n]+ does not exist any more; [^\n]+--wdir[^\n]+ \[AR-WDIR\]\n", refused.stderr), refused.stderr
    elsewhere = from_nowhere("-np", "1", "--wdir", "/", "pwd")
    assert (elsewhere.returncode, elsewhere.stdout) == (0, "/\n"), elsewhere.stderr


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]", socket.gethostname()])
def test_this_host_has_many_names(name):
    plan = run("--dry-run", "-H", f"{name}:3", "true")
    assert plan.returncode == 0, plan.stderr
    assert "3 ranks (0-2), 3 slots" in plan.stdout


def test_plan_says_where_each_value_came_from():
    plan = run("--dry-run", "-np", "1", "--kill_grace=5", "true").stdout
    assert re.search(r"^  --kill-grace +5 +command line$", plan, re.M)
    assert re.search(r"^  --bind-to +auto +default$", plan, re.M)


def test_one_line_when_ranks_outnumber_cores():
    crowded = run("--dry-run", "-np", str(CORES + 1), "true")
    assert crowded.returncode == 0
    assert re.fullmatch(r"aiaccrun: \d+ ranks share \d+ usable core[^\n]*\[AR-BUSY\]\n", crowded.stderr)
    assert "not bound" in crowded.stdout
    assert run("--dry-run", "-np", str(CORES + 1), "--oversubscribe", "true").stderr == ""


def test_inherited_mask_limits_the_cores():
    one = min(os.sched_getaffinity(0))
    plan = run("--dry-run", "-np", "1", "true", preexec_fn=lambda: os.sched_setaffinity(0, {one}))
    assert f"1 core (cpus {one})" in plan.stdout


def test_another_machine_can_be_described():
    env = {"PATH": "/usr/bin:/bin", "HWLOC_SYNTHETIC": "package:2 numa:1 core:4 pu:2"}
    plan = run("--dry-run", "-np", "2", "true", env=env).stdout
    assert "8 cores (cpus 0-15), 2 NUMA domains, 2 packages" in plan
    assert "rank 1 on " in plan and "cores 4-7 (cpus 8-15) of NUMA 1, package 1, OMP_NUM_THREADS=4" in plan


def test_values_of_variables_are_not_printed():
    plan = run("--dry-run", "-np", "1", "-x", "TOKEN=hunter2", "true")
    assert "TOKEN" in plan.stdout and "hunter2" not in plan.stdout


def test_a_command_line_of_mpirun_runs():
    """As Horovod and MPI operators write it: one line for what has no effect, the job runs, and --quiet leaves the line out."""
    words = ["--allow-run-as-root", "-np", "2", "-H", "localhost:2", "--bind-to", "none", "--map-by", "slot", "-x", "A=1",
             "-mca", "pml", "ob1", "-mca", "btl", "^openib", "--tag-output", "sh", "-c", "echo $A"]
    job = run(*words)
    assert job.returncode == 0, job.stderr
    assert sorted(job.stdout.splitlines()) == ["[0] 1", "[1] 1"]
    assert re.fullmatch(r"aiaccrun: -mca pml ob1, -mca btl \^openib have no effect: [^\n]+ \[AR-IGNORED\]\n", job.stderr), job.stderr
    quiet = run("-q", *words)
    assert (quiet.returncode, quiet.stderr) == (0, "")


def test_a_command_line_of_mpiexec_runs(tmp_path):
    (tmp_path / "hosts").write_text("localhost:2\n")
    words = ["-f", str(tmp_path / "hosts"), "-ppn", "2", "-genv", "A", "1", "-env", "B=2", "-genvall", "-l", "sh", "-c", "echo $A$B"]
    job = run(*words)
    assert (job.returncode, job.stderr) == (0, "")
    assert sorted(job.stdout.splitlines()) == ["[0] 12", "[1] 12"]


def test_version_and_help():
    version = run("--version")
    assert version.returncode == 0 and re.match(r"aiaccrun \(aiacc\) \d+\.\d+\.\d+\n", version.stdout)
    text = run("--help")
    assert text.returncode == 0 and text.stderr == "" and len(text.stdout.splitlines()) <= 70
