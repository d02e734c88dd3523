"""The timeline and the numbers of real ranks, on one host and on hosts that share nothing but a network."""
import json
import re

import pytest

from launcher_support import compiled
from runtime_process_test import said

# No rank ends a reduction before each has begun it. A clock may be wrong by half of a round trip, which the file has.
MOST_APART_US = 50_000
MOST_ERROR_US = 200_000
SPANS = {"wait", "negotiate", "queue", "reduce", "pack", "unpack", "round", "step ends"}


@pytest.fixture(scope="module")
def gradients():
    return compiled("tests/programs/gradients.c")


@pytest.mark.parametrize("where, ranks", [(1, 1), (3, 3), ("h0:2,h1:1", 3)])
def test_all_ranks_are_in_one_file(launch, gradients, tmp_path, where, ranks):
    tmp_path.chmod(0o777)
    code, _, err = launch(where, gradients, "steady", env={"AIACC_TIMELINE": str(tmp_path / "timeline.json")}).finish()
    assert (code, said(err)) == (0, ""), err
    events = json.loads((tmp_path / "timeline.json").read_text())
    names = {(event["pid"], event["name"]) for event in events}
    for rank in range(ranks):
        assert SPANS - {name for pid, name in names if pid == rank} == set(), rank
    rows = {event["args"]["name"] for event in events if event["name"] == "thread_name" and event["pid"] == ranks - 1}
    assert {"steady: negotiation", "steady: layer 0", "steady: layer 23"} <= rows
    # The ranks reduce each tensor together, so the clocks of all agree: each reduction overlaps with that of every other rank.
    row_of = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    reductions = {}
    for event in events:
        if event["name"] == "reduce":
            reductions.setdefault((row_of[event["pid"], event["tid"]], event["pid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    error_us = {event["pid"]: event["args"]["error_us"] for event in events if event["name"] == "clock"}
    mine = [(row, spans) for (row, rank), spans in reductions.items() if rank == 0]
    assert len(mine) >= 20
    for row, spans in mine:
        for rank in range(1, ranks):
            theirs = reductions[row, rank]
            assert len(theirs) == len(spans), (row, rank)
            apart = [max(a[0], b[0]) - min(a[1], b[1]) for a, b in zip(sorted(spans), sorted(theirs))]
            assert max(apart) < MOST_APART_US + min(error_us.get(rank, 0), MOST_ERROR_US), f"{row} of rank {rank}: {max(apart)} us between what ranks 0 and {rank} do together"


def test_spans_have_horovods_names_where_horovods_variable_asks_for_them(launch, gradients, tmp_path):
    tmp_path.chmod(0o777)
    code, _, err = launch(2, gradients, "steady", env={"HOROVOD_TIMELINE": str(tmp_path / "timeline.json")}).finish()
    assert (code, said(err)) == (0, ""), err
    events = json.loads((tmp_path / "timeline.json").read_text())
    wanted = {"NEGOTIATE_ALLREDUCE", "QUEUE", "ALLREDUCE", "MEMCPY_IN_FUSION_BUFFER", "MEMCPY_OUT_FUSION_BUFFER", "WAIT_FOR_DATA", "CYCLE_START"}
    names = {event["name"] for event in events}
    assert wanted <= names and not (SPANS - {"round", "step ends"}) & names, names


@pytest.mark.parametrize("where, pairs", [(2, set()), ("h0:1,h1:1", {(0, 1), (1, 0)})])
def test_what_connections_carry_is_in_it(launch, gradients, tmp_path, where, pairs):
    tmp_path.chmod(0o777)
    code, _, err = launch(where, gradients, "steady", env={"AIACC_TIMELINE": str(tmp_path / "timeline.json")}).finish()
    assert (code, said(err)) == (0, ""), err
    counters = {}
    for event in json.loads((tmp_path / "timeline.json").read_text()):
        if event["ph"] == "C":
            rank, number = event["pid"], re.fullmatch(r"connection 0 with rank (\d)", event["name"])
            counters.setdefault((rank, int(number[1])), []).append((event["ts"], event["args"]))
    assert set(counters) == pairs
    for samples in counters.values():
        # Each value holds until the next one.
        moved = {key: sum(now[1][key] * (then[0] - now[0]) for now, then in zip(samples, samples[1:])) for key in ("sent MB/s", "received MB/s")}
        assert min(moved.values()) > 1_000_000, (moved, "bytes")
        assert all(value >= 0 for _, sample in samples for value in sample.values()) and sorted(samples, key=lambda one: one[0]) == samples


def test_a_timeline_that_cannot_be_written_is_one_line_and_the_job_goes_on(launch, gradients):
    code, _, err = launch(2, gradients, "order", env={"AIACC_TIMELINE": "/nowhere/timeline.json"}).finish()
    assert code == 0, err
    assert err.count("there will be no timeline (AIACC_TIMELINE): cannot write to /nowhere/timeline.json") == 1, err


def test_the_file_is_whole_after_a_rank_was_killed(launch, gradients, tmp_path):
    tmp_path.chmod(0o777)
    file, over = tmp_path / "timeline.json", tmp_path / "over"
    job = launch(3, "--kill-grace", "60", gradients, "death", over, env={"AIACC_TIMELINE": str(file)})
    job.wait_for(lambda: file.exists() and '"reduce"' in file.read_text(), "a step in the timeline")
    over.touch()
    code, _, err = job.finish()
    assert code == 137, err
    assert any(event["name"] == "reduce" for event in json.loads(file.read_text()))
