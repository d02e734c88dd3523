"""The picture that examples/pytorch draws of a timeline."""
import json
import subprocess
import sys

import pytest

from python_support import SOURCE


def draw(path, *arguments):
    return subprocess.run([sys.executable, SOURCE / "examples/pytorch/timeline_picture.py", path, *arguments], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60)


def events():
    """Rank 1 of two: two steps of 80 us, whose second gradient is reduced after the end of the step."""
    rows = {0: "optimizer: negotiation", 1: "optimizer: last.bias", 2: "optimizer: first", 3: "other: negotiation"}
    for row, name in rows.items():
        yield {"ph": "M", "pid": 1, "tid": row, "name": "thread_name", "args": {"name": name}}
    for begin in (0, 100):
        for row, name, first, last in ((1, "wait", 0, 10), (1, "negotiate", 10, 20), (1, "reduce", 20, 40), (1, "unpack", 60, 70),
                                       (2, "pack", 10, 20), (2, "wait", 20, 30), (2, "queue", 30, 40), (2, "reduce", 40, 80), (0, "round", 10, 20)):
            yield {"ph": "X", "pid": 1, "tid": row, "name": name, "ts": begin + first, "dur": last - first}
        yield {"ph": "i", "s": "p", "pid": 1, "tid": 0, "name": "step ends", "ts": begin + 35, "args": {"number": 1}}
        yield {"ph": "i", "s": "p", "pid": 1, "tid": 3, "name": "step ends", "ts": begin + 90, "args": {"number": 1}}
    yield {"ph": "X", "pid": 0, "tid": 1, "name": "reduce", "ts": 0, "dur": 1}
    yield {"ph": "C", "pid": 1, "ts": 3, "name": "connection 0 with rank 0", "args": {"sent MB/s": 1.0}}


def test_each_step_has_a_row_for_each_gradient(tmp_path):
    file = tmp_path / "timeline.json"
    file.write_text(json.dumps(list(events())))
    done = draw(file, "--rank", "1", "--width", "8", "--steps", "1,2,3")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    for step in (1, 2):
        assert lines[4 * step - 4:4 * step] == [f"step {step} of rank 1: 0.08 ms from its first gradient to its last result",
                                                "  last.bias   |.n##  u |", "  first       | p.q####|", "  negotiation | -      |"]
    assert lines[8] == "step 3 of rank 1 is not in the timeline, which has 2"
    assert "# reduced" in lines[9] and len(lines) == 10


@pytest.mark.parametrize("text, arguments, expected", [("{", (), "is no timeline"), ('{"a": 1}', (), "is no timeline"), ("[]", ("--steps", "0"), "from 1"),
                                                       ("[]", ("--steps", "x"), "from 1")])
def test_what_is_no_timeline_is_one_sentence(tmp_path, text, arguments, expected):
    file = tmp_path / "timeline.json"
    file.write_text(text)
    done = draw(file, *arguments)
    assert done.returncode == 1 and expected in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_timeline_without_steps_says_so(tmp_path):
    file = tmp_path / "timeline.json"
    file.write_text("[]")
    assert draw(file, "--steps", "1").stdout.splitlines()[0] == "step 1 of rank 0 is not in the timeline, which has 0"
