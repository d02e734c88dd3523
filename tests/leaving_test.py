"""A rank of a job without aiaccrun leaves while others compute, or wait for its process to end: they are its peers, and one of them is the
parent that joins it."""
import os
import subprocess

import pytest

from python_support import ENVIRONMENT, SOURCE, each_torch

PYTHON = "/usr/bin/python3"
FOREIGN = ("AIACC_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "TORCHELASTIC_")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
ENDED_WELL = ("", 0)


def run(*words, python=PYTHON, program="leaving.py"):
    done = subprocess.run([python, SOURCE / "tests/programs" / program, *map(str, words)], env={**CLEAN, **ENVIRONMENT}, cwd="/",
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=150)
    return done.stdout, done.stderr, done.returncode


@pytest.mark.parametrize("what", ["nothing", "finalize", "sends"])
@pytest.mark.parametrize(("ranks", "parent"), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
def test_a_process_joins_other_ranks_before_it_leaves(what, ranks, parent):
    """What they have sent is there when they are gone."""
    assert run(what, ranks, parent) == (f"{[0] * (ranks - 1)}\n", *ENDED_WELL)


@pytest.mark.parametrize("parent", [0, 1, 2])
def test_ranks_go_on_when_another_one_has_left(parent):
    """Also rank 0, which tells of lost ranks in other jobs."""
    assert run("goes on", 3, parent) == ("it worked again\n[0, 0]\n", *ENDED_WELL)


@pytest.mark.parametrize("parent", [0, 1])
def test_a_rank_that_dies_after_another_one_has_left_is_lost(parent):
    """With parent 1, rank 0 has left: nobody but the kernel tells."""
    out, err, code = run("is killed", 3, parent)
    assert (out, code) == ("lost 1\n[0, -9]\n", 0), err  # in their group
    assert "rank 2 on host" in err


@pytest.mark.parametrize("parent", [0, 1])
def test_a_call_that_waits_for_a_rank_that_has_left_names_it(parent):
    out, err, code = run("calls", 2, parent)
    left = 1 - parent
    assert (code, out.splitlines()[1:]) == (0, ["[0]"]), (out, err)
    assert out.startswith(f"mismatch {left} rank {parent} called allreduce") and f"but rank {left} has left the job" in out


@pytest.mark.parametrize("destroys", ["destroys", "does not"])
@pytest.mark.parametrize("python", each_torch())
def test_a_process_joins_ranks_of_torch_multiprocessing(python, destroys):
    out, err, code = run(3, destroys, python=python, program="torch_leaving.py")
    assert (out, code) == ("[0, 0]\n", 0), err
    assert "aiacc" not in err, err
