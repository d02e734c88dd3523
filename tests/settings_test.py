"""AIACC_* variables, as a program and its user see them: warnings, refusals, and the report of a late rank."""
import json
import pathlib
import subprocess

import pytest

from abi_process_test import CLEAN, compiled
from launcher_support import AIACCRUN, Job, as_user, users

PROGRAM = r"""
#include <aiacc/aiacc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void show_report(void) {
  size_t size = 1 << 20;
  char* text = malloc(size);
  if (aiacc_info(text, size, NULL) != AIACC_OK) exit(5);
  puts(text);
  free(text);
}
int main(int argc, char** argv) {
  if (aiacc_init(NULL) != AIACC_OK) { fprintf(stderr, "init: %s\n", aiacc_last_error()); return 9; }
  int rank = -1;
  if (aiacc_rank(AIACC_WORLD, &rank) != AIACC_OK) return 8;
  while (argc > 2 && argv[1][0] == 'l' && rank == 1 && access(argv[2], F_OK) != 0) sleep(1);
  void* memory = NULL;
  if (argc > 1 && argv[1][0] == 'm' && aiacc_mem_alloc(AIACC_NULL, 48 << 20, &memory) != AIACC_OK) {
    fprintf(stderr, "mem_alloc: %s\n", aiacc_last_error());
    return 5;
  }
  if (argc > 1 && argv[1][0] == 'd') {
    float data[2] = {1, 2};
    for (int i = 0; i < 3; ++i)
      if (aiacc_allreduce(data, data, 2, AIACC_FLOAT32, AIACC_SUM, AIACC_WORLD, NULL, NULL) != AIACC_OK) return 4;
    aiacc_attr_t attr = {.size = sizeof attr, .name = "the odd one"};
    if (aiacc_allreduce(data, data, rank == 1 ? 1 : 2, AIACC_FLOAT32, AIACC_SUM, AIACC_WORLD, &attr, NULL) != AIACC_ERR_MISMATCH) return 3;
    if (rank == 0) show_report();
    return aiacc_finalize() == AIACC_OK ? 0 : 6;
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


@pytest.mark.skipif(not AIACCRUN.exists(), reason="aiaccrun is not part of this build")
def test_variables_of_other_libraries_without_effect_are_one_line_of_the_job(program):
    done = run([AIACCRUN, "-np", 2, program], HOROVOD_CYCLE_TIME="0.1", PERSEUS_ALLREDUCE_MODE="1", PERSEUS_ALLREDUCE_STREAMS="2")
    assert done.returncode == 0
    lines = [line for line in done.stderr.splitlines() if "HOROVOD_" in line or "PERSEUS_" in line]
    assert len(lines) == 1 and "HOROVOD_CYCLE_TIME, PERSEUS_ALLREDUCE_MODE have no effect" in lines[0] and "STREAMS" not in lines[0], done.stderr


def test_nothing_is_logged_when_it_is_off(program):
    done = run([program], AIACC_TIMOUT="3", AIACC_LOG="off")
    assert (done.returncode, done.stderr) == (0, "")


def test_bad_value_is_refused_with_its_range(program):
    done = run([program], AIACC_TIMEOUT="soon")
    assert done.returncode == 9
    assert "AIACC_TIMEOUT='soon' is not possible" in done.stderr and "from 1ms to 30d" in done.stderr


def test_congestion_control_is_one_that_the_kernel_has(program):
    done = run([program], AIACC_TCP_CONGESTION="swift-sparrow")
    assert done.returncode == 9
    has = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().strip()
    assert f"AIACC_TCP_CONGESTION='swift-sparrow' is not possible: the kernel has no such congestion control; it has {has}" in done.stderr
    assert run([program], AIACC_TCP_CONGESTION="reno").returncode == 0


def test_names_of_algorithms_are_checked(program):
    done = run([program], AIACC_ALGORITHM="broadcast=rign")
    assert done.returncode == 9
    assert "AIACC_ALGORITHM='broadcast=rign': broadcast has no algorithm 'rign' between hosts; it has binomial, chain" in done.stderr
    assert run([program], AIACC_ALGORITHM="allreduce=^ring,barrier=dissemination").returncode == 0


def test_marks_of_traffic_classes_are_checked(program):
    done = run([program], AIACC_TC_LAT="dscp=64")
    assert done.returncode == 9
    assert "AIACC_TC_LAT: 'dscp=64' is nothing that a traffic class has; it takes dscp=0 to 63, priority=0 to 15, share=1 to 1000" in done.stderr
    for word, name in (("share=3", "share"), ("delay=2ms", "delay")):
        done = run([program], AIACC_TC_CTRL=word)
        assert done.returncode == 9
        assert f"AIACC_TC_CTRL: '{name}' is for the other classes; control goes before all of them" in done.stderr
    assert run([program], AIACC_TC_LAT="dscp=34,priority=4", AIACC_TC_BULK="delay=none", AIACC_TC_BG="share=2,rate=500mbit,delay=5ms").returncode == 0


def test_the_number_of_connections_is_checked(program):
    done = run([program], AIACC_TCP_STREAMS="8-2")
    assert done.returncode == 9
    assert "AIACC_TCP_STREAMS: '8-2' is no number of connections; it takes 1 to 64, a range as in 2-8, or auto" in done.stderr
    for good in ("64", "2-8", "auto"):
        assert run([program], AIACC_TCP_STREAMS=good).returncode == 0


@pytest.mark.skipif("ordinary" not in users(), reason="needs root, to become an ordinary user")
def test_congestion_control_is_one_that_the_user_may_choose():
    controls = {which: set(pathlib.Path(f"/proc/sys/net/ipv4/tcp_{which}_congestion_control").read_text().split())
                for which in ("available", "allowed")}
    withheld = sorted(controls["available"] - controls["allowed"])
    if not withheld:
        pytest.skip("every user of this host may choose every congestion control that it has")
    done = run([*as_user("ordinary"), AIACCRUN.parent / "aiacc-perf", "allreduce"], AIACC_TCP_CONGESTION=withheld[0])
    assert done.returncode != 0 and "this user may not choose that congestion control" in done.stderr, done.stderr


@pytest.mark.skipif(not AIACCRUN.exists(), reason="aiaccrun is not part of this build")
def test_late_rank_is_named_once_by_who_waits(program, tmp_path):
    """Rank 1 comes when it has been said."""
    job = Job(["-np", 2, "--timeout", 60, program, "late", tmp_path / "said"], env={"AIACC_LATE_AFTER": "200ms"})
    # Of the program's barrier: on a slow machine rank 0 may be late for that of aiacc_finalize.
    said = job.said_until(r" collective: barrier \(operation 1 of the world")
    (tmp_path / "said").touch()
    code, _, err = job.finish()
    assert code == 0, said + err
    lines = [line for line in (said + err).splitlines() if " collective: barrier (operation 1 of the world" in line]
    assert len(lines) == 1 and "[rank 0 on " in lines[0] and "rank 1" in lines[0], said + err


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


@pytest.mark.skipif(not AIACCRUN.exists(), reason="aiaccrun is not part of this build")
def test_last_operations_of_each_rank_are_kept(program, tmp_path):
    done = run([AIACCRUN, "-np", 2, program, "disagree"], AIACC_RECORDS=str(tmp_path / "records"))
    lines = [line for line in done.stderr.splitlines() if "The last operations of this rank" in line]
    assert len(lines) == 2 and all("(operation 3 of the world) ended well" in line for line in lines), done.stderr
    assert all("'the odd one' (operation 4 of the world) has run for" in line for line in lines), done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["records.0", "records.1"]
    for rank in range(2):
        record = json.loads((tmp_path / f"records.{rank}").read_text())
        assert record["rank"] == rank and "rank 1: allreduce of 1 fp32" in record["reason"], record
        check_operations(record["operations"], rank, last_status=None)
    report = next(line for line in done.stdout.splitlines() if '"recent_operations"' in line)
    check_operations(json.loads(report[report.index("{"):])["recent_operations"], 0, last_status="mismatch")


def check_operations(operations, rank, last_status):
    assert [one["sequence"] for one in operations] == [1, 2, 3, 4]
    assert [one["count"] for one in operations] == [2, 2, 2, 1 if rank == 1 else 2]
    assert [one["status"] for one in operations] == ["ok"] * 3 + [last_status]
    assert [one["name"] for one in operations] == [""] * 3 + ["the odd one"]
    assert {one["group"] for one in operations} == {"the world"}
    begins = [one["began_ns"] for one in operations]
    assert begins == sorted(begins) and begins[0] > 0


def test_records_that_cannot_be_written_are_told_of(program, tmp_path):
    if not AIACCRUN.exists():
        pytest.skip("aiaccrun is not part of this build")
    done = run([AIACCRUN, "-np", 2, program, "disagree"], AIACC_RECORDS=str(tmp_path / "none" / "records"))
    assert done.returncode == 0, done.stderr
    assert "cannot write the last operations of this rank to" in done.stderr and "AIACC_RECORDS" in done.stderr
