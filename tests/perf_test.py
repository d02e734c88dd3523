"""aiacc-perf as a job: right results and figures for every collective, wrong ones found, failures told once."""
import contextlib
import json
import math
import os
import pty
import re
import subprocess
import xml.etree.ElementTree

import pytest

import namespace_hosts
from launcher_support import AIACCRUN, ORDINARY, STAGE, users

PERF = STAGE / "bin/aiacc-perf"
SOURCE = os.environ["AIACC_SOURCE"]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("AIACC_")}
QUICK = ["-n", "3", "-w", "1", "--bound", "0"]
pytestmark = pytest.mark.skipif(not PERF.exists() or not AIACCRUN.exists(), reason="aiacc-perf is not part of this build")


def perf(ranks, *arguments, inside=(), launch=(), **variables):
    forward = [word for name in variables for word in ("-x", name)]
    return subprocess.run([*inside, AIACCRUN, "--oversubscribe", *launch, "-np", str(ranks), *forward, PERF, *arguments],
                          env={**CLEAN, **variables}, cwd="/", capture_output=True, text=True, timeout=100)


def rows(run):
    assert run.returncode == 0, run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["setup"] + ["row"] * (len(lines) - 1)
    return lines[1:]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_collective_is_right(ranks):
    found = rows(perf(ranks, "all", "-b", "1", "-e", "70000", "-f", "17", "--json", *QUICK))
    assert {row["collective"] for row in found} >= {"allreduce", "reduce", "broadcast", "allgather", "reduce_scatter", "alltoall", "gather", "scatter",
                                                      "sendrecv", "barrier"}
    assert all(row["wrong"] == 0 and row["hash"] for row in found if row["collective"] != "barrier")
    assert all(row["calls"] == 3 and 0 < row["p50_us"] <= row["p99_us"] for row in found)
    factors = {name: (ranks - 1) / ranks for name in ("allgather", "reduce_scatter", "alltoall", "gather", "scatter")}
    factors["allreduce"] = 2 * (ranks - 1) / ranks
    for row in found:
        if row["collective"] == "barrier":
            assert row["busbw_gbs"] is None and row["bytes"] == 0
            continue
        assert math.isclose(row["algbw_gbs"], row["bytes"] / row["time_us"] / 1000, rel_tol=1e-9)
        assert math.isclose(row["busbw_gbs"], row["algbw_gbs"] * factors.get(row["collective"], 1), rel_tol=1e-9, abs_tol=1e-12)


def test_names_of_nccl_tests():
    programs = ["all_reduce_perf", "reduce_perf", "broadcast_perf", "all_gather_perf", "reduce_scatter_perf", "alltoall_perf", "gather_perf",
                "scatter_perf", "sendrecv_perf"]
    found = rows(perf(2, *programs, "all_reduce", "all-gather", "all_to_all", "reducescatter", "-b", "64", "-e", "64", "--place", "out", "--json",
                      *QUICK))
    assert [row["collective"] for row in found if row["bytes"]] == [
        "allreduce", "reduce", "broadcast", "allgather", "reduce_scatter", "alltoall", "gather", "scatter", "sendrecv",
        "allreduce", "allgather", "alltoall", "reduce_scatter"]


def test_roots_other_than_the_first():
    found = rows(perf(3, "broadcast", "reduce", "gather", "scatter", "-r", "2", "-b", "100", "-e", "70000", "-f", "700", "--json", *QUICK))
    assert len(found) == 14 and all(row["root"] == 2 and row["wrong"] == 0 for row in found)


def test_every_type_and_operator_is_right():
    found = rows(perf(3, "allreduce", "reduce_scatter", "-b", "4096", "-e", "4096", "-d", "all", "-o", "all", "--place", "in", "--json", *QUICK))
    pairs = {(row["type"], row["op"]) for row in found}
    assert len(pairs) == 13 * 8 - 4 * 3 and ("float", "band") not in pairs
    assert all(row["wrong"] == 0 for row in found), [row for row in found if row["wrong"]]


@pytest.mark.parametrize("ranks", [2, 3])
def test_an_operator_of_ones_own_is_right(ranks):
    found = rows(perf(ranks, "all", "-o", "user", "-d", "half", "-b", "8", "-e", "70000", "-f", "90", "--json", *QUICK))
    reduced = [row for row in found if row["op"] == "user"]
    assert {row["collective"] for row in reduced} == {"allreduce", "reduce", "reduce_scatter"} and {row["type"] for row in reduced} == {"record"}
    assert all(row["wrong"] == 0 for row in found if row["collective"] != "barrier")
    assert {row["type"] for row in found if row["collective"] == "allgather"} == {"half"}


def on_a_terminal(command):
    """What a terminal gets from the command's standard output and error."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([str(word) for word in command], env=CLEAN, cwd="/", stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        text = b""
        with contextlib.suppress(OSError):  # how a terminal ends whose last writer is gone
            while piece := os.read(ours, 65536):
                text += piece
        os.close(ours)
        assert process.wait(60) == 0, text
    return text.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("tagged", [False, True])
def test_progress_keeps_its_place_among_the_rows(tagged):
    text = on_a_terminal([AIACCRUN, *(["--tag-output"] if tagged else []), "--oversubscribe", "-np", "2", PERF, "allreduce", "-b", "8", "-e", "1M", *QUICK])
    assert ("1 of 36: allreduce 8 bytes" in text) != tagged
    seen = [line.rsplit("\r\033[K", 1)[-1] for line in text.split("\n")]
    table = [line for line in seen if "allreduce  " in line and not line.startswith("#")]
    assert len(table) == 36 and all(line.startswith("[0]   " if tagged else "  allreduce ") and "of 36" not in line for line in table), seen
    assert len({len(line) for line in table}) == 1, "columns stand below each other"


def test_hash_is_that_of_the_result():
    def hashes(*arguments):
        return [row["hash"] for row in rows(perf(2, "allreduce", "-b", "4K", "-e", "4K", "--json", *arguments, *QUICK))]
    shared = hashes()
    assert len(set(shared)) == 1, "in place or out of place, the result is the same"
    assert hashes("--memory", "private", "--buffers", "cold") == shared
    assert hashes("-o", "max") != shared


def test_bound_is_measured_on_one_host():
    found = perf(2, "allreduce", "-b", "1M", "-e", "1M", "--place", "out", "--json", "-n", "3")
    setup = json.loads(found.stdout.splitlines()[0])["bandwidth"]
    assert setup["copy_gbs"] > 0 and setup["triad_gbs"] > 0
    row = rows(found)[0]
    best = max(setup["copy_gbs"], setup["triad_gbs"])
    assert math.isclose(row["bound_percent"], 100 * row["algbw_gbs"] * 4 / best, rel_tol=1e-9), "2 ranks read and write all"


@pytest.fixture(scope="module")
def corrupt(tmp_path_factory):
    library = tmp_path_factory.mktemp("corrupt") / "corrupt.so"
    subprocess.run(["cc", "-std=gnu17", "-shared", "-fPIC", f"-I{STAGE}/include", f"{SOURCE}/tests/programs/corrupt.c", "-o", library], check=True)
    if "asan" in subprocess.run(["readelf", "-d", STAGE / "lib/libaiacc.so"], capture_output=True, text=True).stdout:
        pytest.skip("a sanitizer wants to be loaded first")
    return str(library)


def test_a_wrong_result_is_counted(corrupt):
    run = perf(2, "allreduce", "-b", "8", "-e", "4K", "-f", "512", "--place", "out", *QUICK, LD_PRELOAD=corrupt)
    assert run.returncode == 1, run.stderr
    wrong = [line.split()[-2] for line in run.stdout.splitlines() if line.startswith("  allreduce")]
    assert wrong == ["0", "1"] and "# wrong elements    : 1 FAILED" in run.stdout


def test_a_failed_call_is_one_sentence(corrupt):
    run = perf(2, "allreduce", "-b", "8", "-e", "4K", "-f", "512", "--place", "out", *QUICK, LD_PRELOAD=corrupt, FAIL_AT="1024")
    told = [line for line in run.stderr.splitlines() if "aiacc-perf: rank 1: " in line]
    assert run.returncode == 3 and len(told) == 1 and "recv" in told[0], run.stderr


def test_a_picture_outlives_a_run_that_fails(corrupt, tmp_path):
    picture, new = tmp_path / "allreduce.svg", tmp_path / "new.svg"
    picture.write_text("that of yesterday")
    for path in picture, new:
        run = perf(2, "allreduce", "-b", "8", "-e", "4K", "-f", "512", "--plot", str(path), *QUICK, LD_PRELOAD=corrupt, FAIL_AT="1024")
        assert run.returncode == 3, run.stderr
    assert picture.read_text() == "that of yesterday" and list(tmp_path.iterdir()) == [picture]


def test_a_picture_that_cannot_be_drawn_is_one_sentence():
    run = perf(2, "allreduce", "-e", "8", "--plot", "/dev/full", *QUICK)
    told = [line for line in run.stderr.splitlines() if "aiacc-perf: " in line]
    assert run.returncode == 3 and told == ["aiacc-perf: cannot write the picture /dev/full: No space left on device"], run.stderr


def test_table_has_its_columns():
    run = perf(2, "allreduce", "barrier", "-b", "8", "-e", "32", *QUICK)
    assert run.returncode == 0 and run.stderr == "", run.stderr
    heading = next(line for line in run.stdout.splitlines() if line.startswith("# collective"))
    assert heading.split()[2:] == "size count type redop root place time p50 p99 algbw busbw bound #wrong hash".split()
    table = [line.split() for line in run.stdout.splitlines() if line[0] != "#"]
    assert [row[:7] for row in table] == [["allreduce", str(size), str(size // 4), "float", "sum", "-", place]
                                         for size in (8, 16, 32) for place in ("out", "in")] + [["barrier", "-", "-", "-", "none", "-", "in"]]
    assert all(len(row) == 15 for row in table)


def test_plot_is_a_picture(tmp_path):
    picture = tmp_path / "allreduce.svg"
    rows(perf(2, "allreduce", "broadcast", "-b", "8", "-e", "64K", "-f", "8", "--json", "--plot", str(picture), *QUICK))
    root = xml.etree.ElementTree.parse(picture).getroot()
    names = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"allreduce", "allreduce, in place", "broadcast, in place", "bus bandwidth (GB/s)"} <= set(names)
    lines = list(root.iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(lines) == 3 and all(len(line.get("points").split()) == 5 for line in lines)
    for circle in root.iter("{http://www.w3.org/2000/svg}circle"):
        assert 70 <= float(circle.get("cx")) <= 610 and 50 <= float(circle.get("cy")) <= 425


def test_plot_of_many_and_of_nothing(tmp_path):
    picture = tmp_path / "many.svg"
    rows(perf(2, "allreduce", "reduce", "-b", "64", "-e", "64", "-d", "all", "-o", "all", "--json", "--plot", str(picture), *QUICK))
    root = xml.etree.ElementTree.parse(picture).getroot()
    texts = list(root.iter("{http://www.w3.org/2000/svg}text"))
    names = [text for text in texts if (text.text or "").startswith(("allreduce ", "reduce "))]
    assert len(names) == 2 * 2 * (13 * 8 - 4 * 3) and all(float(text.get("y")) < float(root.get("height")) for text in names)
    colours = {name.text: line.get("stroke") for name, line in zip(names, root.iter("{http://www.w3.org/2000/svg}polyline"))}
    assert colours["allreduce half sum"] == colours["allreduce half sum, in place"] != colours["allreduce half avg"]
    rows(perf(1, "allreduce", "-e", "64", "--json", "--plot", str(picture), *QUICK))  # in place of the other
    assert list(tmp_path.iterdir()) == [picture]
    assert "nothing passes between ranks" in picture.read_text() and "nan" not in picture.read_text()


@pytest.mark.parametrize("arguments, sentence", [
    (["allreduse"], "there is no collective 'allreduse'; the nearest is allreduce"),
    ([], "no collective to measure"),
    (["allreduce", "-b", "1M", "-e", "1K"], "the smallest size, 1M, is above the largest, 1K"),
    (["allreduce", "-d", "float32"], "-d does not take 'float32'; the nearest is float"),
    (["allreduce", "-o", "bxor"], "bxor is bitwise and does not take float"),
    (["broadcast", "-r", "2"], "-r 2: the ranks are 0 to 1"),
    (["allreduce", "-f", "1"], "-f takes a factor above 1"),
    (["allreduce", "-n", "0"], "-n takes a whole number from 1"),
    (["allreduce", "--plot", "/nowhere/x.svg", "-e", "8", *QUICK], "cannot write the picture /nowhere/x.svg"),
])
def test_usage(arguments, sentence):
    run = perf(2, *arguments)
    told = [line for line in run.stderr.splitlines() if "aiacc-perf: " in line]
    assert len(told) == 1 and sentence in told[0], run.stderr
    assert run.returncode == (3 if "picture" in sentence else 2)
    assert run.stdout == "", "nothing was measured"


def test_help_and_manual_have_the_same_options():
    text = subprocess.run([PERF, "--help"], env=CLEAN, capture_output=True, text=True, check=True).stdout
    of_help = re.findall(r"^  (-.*?)(?:  |$)", text, re.M)
    with open(f"{SOURCE}/man/aiacc-perf.1") as page:
        options = re.search(r"^\.Sh OPTIONS\n(.*?)^\.Sh ", page.read(), re.S | re.M)[1]
    of_page = [re.sub(r" Ar ", " ", re.sub(r"Fl ", "-", item)).replace(" ,", ",") for item in re.findall(r"^\.It (.*)$", options, re.M)]
    assert of_help == of_page


@pytest.mark.skipif(namespace_hosts.unavailable() is not None, reason=str(namespace_hosts.unavailable()))
def test_over_hosts():
    with namespace_hosts.Hosts(2) as hosts:
        found = perf(3, "all", "-b", "64", "-e", "4096", "-f", "64", "--json", "-n", "2", "-w", "0", launch=["--launch-agent", hosts.enter, "-H", "h0:2,h1:1"])
    assert json.loads(found.stdout.splitlines()[0])["bandwidth"] is None, "there is no bound over hosts"
    assert all(row["wrong"] in (0, None) and row["bound_percent"] is None for row in rows(found))


def classes(launch, *arguments, **variables):
    found = perf(2, "--classes", "-b", "8K", "-e", "1M", "-n", "4", "-w", "1", "--json", *arguments, launch=launch, **variables)
    assert found.returncode == 0, found.stderr
    return [json.loads(line) for line in found.stdout.splitlines()]


@pytest.mark.skipif(namespace_hosts.unavailable() is not None, reason=str(namespace_hosts.unavailable()))
def test_two_classes_at_once_over_a_slow_line():
    with namespace_hosts.Hosts(2, "200mbit") as hosts:
        launch = ["--launch-agent", hosts.enter, "-H", "h0:1,h1:1"]
        latency, bulk = classes(launch, AIACC_TC_LAT="dscp=34,priority=4")
        paced = classes(launch, AIACC_TC_BULK="rate=80mbit")[1]
    assert [(row["class"], row["bytes"], row["wrong"]) for row in (latency, bulk)] == [("latency", 8192, 0), ("bulk", 1 << 20, 0)]
    for row in (latency, bulk, paced):
        assert all(0 < row[how]["p50_us"] <= row[how]["p99_us"] for how in ("alone", "together"))
    assert (latency["alone"]["calls"], bulk["alone"]["calls"], bulk["together"]["calls"]) == (4, 4, 4)
    assert latency["together"]["calls"] >= 1
    # Four allreduces of 1 MiB at 10 MB/s; the kernel sends some packets before it begins to pace.
    assert max(paced[how]["algbw_gbs"] for how in ("alone", "together")) < 0.0115


def test_classes_takes_no_collective():
    done = perf(1, "--classes", "allreduce")
    assert done.returncode == 2 and "--classes measures allreduces; leave out 'allreduce'" in done.stderr
    text = perf(1, "--classes", "-n", "2", "-e", "64K").stdout
    assert "one host, where classes have no effect" in text and len(text.splitlines()) == 7


@pytest.mark.parametrize("user", users())
def test_every_user_can_measure(user):
    inside = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups"] if user == "ordinary" else []
    found = rows(perf(2, "allreduce", "-b", "1M", "-e", "1M", "--memory", "private", "--json", *QUICK, inside=inside))
    assert all(row["wrong"] == 0 for row in found)
