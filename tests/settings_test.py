"""AIACC_* variables, as a program and its user see them: warnings, refusals, and the report of a late rank."""
import subprocess

import pytest

from abi_process_test import CLEAN, STAGE, compiled

AIACCRUN = STAGE / "bin/aiaccrun"
PROGRAM = r"""
#include <aiacc/aiacc.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char** argv) {
  if (aiacc_init(NULL) != AIACC_OK) { fprintf(stderr, "init: %s\n", aiacc_last_error()); return 9; }
  int rank = -1;
  if (aiacc_rank(AIACC_WORLD, &rank) != AIACC_OK) return 8;
  if (argc > 1 && argv[1][0] == 'l' && rank == 1) sleep(2);
  void* memory = NULL;
  if (argc > 1 && argv[1][0] == 'm' && aiacc_mem_alloc(AIACC_NULL, 48 << 20, &memory) != AIACC_OK) {
    fprintf(stderr, "mem_alloc: %s\n", aiacc_last_error());
    return 5;
  }
  if (aiacc_barrier(AIACC_WORLD, NULL, NULL) != AIACC_OK) { fprintf(stderr, "barrier: %s\n", aiacc_last_error()); return 7; }
  return aiacc_finalize() == AIACC_OK ? 0 : 6;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("settings")
    source = folder / "program.c"
    source.write_text(PROGRAM)
    return compiled(source, folder)


def run(command, **variables):
    return subprocess.run([str(word) for word in command], env={**CLEAN, **variables}, capture_output=True, text=True, timeout=60)


def test_unknown_variable_is_warned_about_once(program):
    done = run([program], AIACC_TIMOUT="3")
    assert done.returncode == 0
    lines = [line for line in done.stderr.splitlines() if "AIACC_TIMOUT" in line]
    assert len(lines) == 1 and "did you mean AIACC_TIMEOUT?" in lines[0] and "warn [rank 0 on " in lines[0], done.stderr


def test_nothing_is_logged_when_it_is_off(program):
    done = run([program], AIACC_TIMOUT="3", AIACC_LOG="off")
    assert (done.returncode, done.stderr) == (0, "")


def test_bad_value_is_refused_with_its_range(program):
    done = run([program], AIACC_TIMEOUT="soon")
    assert done.returncode == 9
    assert "AIACC_TIMEOUT='soon' is not possible" in done.stderr and "from 1ms to 30d" in done.stderr


@pytest.mark.skipif(not AIACCRUN.exists(), reason="aiaccrun is not part of this build")
def test_late_rank_is_named_once_by_who_waits(program):
    done = run([AIACCRUN, "-np", 2, program, "late"], AIACC_LATE_AFTER="200ms")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if " collective: " in line]
    assert len(lines) == 1 and "[rank 0 on " in lines[0] and "rank 1" in lines[0], done.stderr


@pytest.mark.skipif(not AIACCRUN.exists(), reason="aiaccrun is not part of this build")
@pytest.mark.parametrize("size, fits", [("32M", False), ("64M", True)])
def test_address_space_of_a_rank_is_what_the_user_says(program, size, fits):
    done = run([AIACCRUN, "-np", 2, program, "memory"], AIACC_SLICE_BYTES=size)
    assert (done.returncode == 0) == fits, done.stderr
    if not fits:
        assert "48 MiB do not fit into what is left of this rank's 32 MiB of shared address space" in done.stderr


@pytest.mark.skipif(not AIACCRUN.exists(), reason="aiaccrun is not part of this build")
def test_a_bad_address_space_is_refused_by_the_ranks(program):
    done = run([AIACCRUN, "-np", 2, program], AIACC_SLICE_BYTES="much")
    assert done.returncode == 9
    assert "AIACC_SLICE_BYTES='much' is not possible" in done.stderr
