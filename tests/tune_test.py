"""aiacc-tune, and jobs that choose algorithms between hosts by its table (AIACC_ALGORITHM_TABLE), over a network."""
import os
import re
import subprocess

import pytest

import namespace_hosts
from launcher_support import STAGE, Job

PERF, TUNE = STAGE / "bin/aiacc-perf", STAGE / "bin/aiacc-tune"
NO_HOSTS = namespace_hosts.unavailable()
needs_hosts = pytest.mark.skipif(NO_HOSTS is not None, reason=str(NO_HOSTS))
pytestmark = pytest.mark.skipif(not TUNE.exists(), reason="aiacc-tune is not part of this build")
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("AIACC_")}
SHORT = ["-b", "256", "-e", "4K", "-f", "16", "-r", "2", "-t", "1"]
HEAD = "aiacc-algorithm-table 1\nmeasured-on h0 h1\ntransport tcp\nstreams 1\nencrypt none\n"
RING = "allreduce 2 plain 512 8192 ring\n"
BY_TABLE = ("allreduce between 2 ranks: recursive-doubling up to 512, ring* up to 8K, recursive-doubling up to 64K, ring above "
            "(*: AIACC_ALGORITHM_TABLE; else measured)")
BY_THRESHOLDS = "allreduce between 2 ranks: recursive-doubling up to 64K, ring above (measured)"


@pytest.fixture(scope="module")
def hosts():
    with namespace_hosts.Hosts(3) as made:
        yield made


def perf(hosts, where, table, before=()):
    """Standard error of a job whose allreduces are right."""
    code, out, err = Job(["--launch-agent", hosts.enter, "-H", where, "-x", f"AIACC_ALGORITHM_TABLE={table}", "-x", "AIACC_LOG=collective=info",
                          *before, PERF, "allreduce", "-b", "64", "-e", "64K", "-f", "4", "-n", "3", "-w", "1", "--bound", "0"]).finish()
    assert code == 0, err
    assert "# wrong elements    : 0 OK" in out, out
    return err


def words_of(table):
    return [line.split() for line in table.read_text().splitlines() if not line.startswith("#")]


@needs_hosts
def test_a_table_is_measured_and_a_job_uses_it(hosts, tmp_path):
    where, counts = "h0,h1,h2", "2,3"
    table = tmp_path / "table"
    code, out, err = Job(["--launch-agent", hosts.enter, "-H", where, TUNE, *SHORT, "--hosts", counts, table]).finish()
    assert code == 0, err
    assert err.count("travel unprotected") == 1 and "no algorithm that can serve" not in err, err
    for count in counts.split(","):
        for collective in ("allreduce", "reduce", "broadcast", "reduce-scatter", "alltoall", "gather", "scatter"):
            assert re.search(rf"^{collective} of 256 between {count} hosts: [-a-z]+ [0-9.]+, .* us; [-a-z]+ (is faster|stays)$", out, re.M), out
        assert f"allreduce of 4K in 16 bits between {count} hosts: " in out
    assert ("halving-doubling" not in out), "it cannot serve two or three hosts"
    words = words_of(table)
    assert words[:5] == [["aiacc-algorithm-table", "1"], ["measured-on", *re.findall(r"h\d", where)], ["transport", "tcp"],
                         ["streams", "1"], ["encrypt", "none"]]
    assert words[-1] == ["end"] and all(len(line) == 6 for line in words[5:-1])
    assert [file.name for file in tmp_path.iterdir()] == ["table"], "no temporary file is left"
    # Of times on this machine nothing can be said: the choice is one that was not measured.
    table.write_text("".join(" ".join(line) + "\n" for line in [*words[:5], RING.split(), *words[-1:]]))
    for place in ("h0,h1", "h0:2,h1:1"):
        assert perf(hosts, place, table).count(BY_TABLE) == 1


@needs_hosts
def test_all_ranks_choose_by_the_table_of_rank_0(hosts, tmp_path):
    (tmp_path / "table").write_text(HEAD + RING + "end\n")
    (tmp_path / "other").write_text(HEAD + RING.replace("ring", "ordered") + "end\n")
    for other in (tmp_path / "other", tmp_path / "none", ""):
        script = f'test "$AIACC_RANK" = 0 || export AIACC_ALGORITHM_TABLE={other}; exec "$@"'
        err = perf(hosts, "h0,h1", tmp_path / "table", before=["sh", "-c", script, "sh"])
        assert err.count(BY_TABLE) == 1 and "chosen as without" not in err, err


@needs_hosts
def test_a_forced_algorithm_goes_before_the_table(hosts, tmp_path):
    (tmp_path / "table").write_text(HEAD + RING + "end\n")
    err = perf(hosts, "h0,h1", tmp_path / "table", before=["-x", "AIACC_ALGORITHM=allreduce=ordered"])
    assert "allreduce between 2 ranks: ordered (AIACC_ALGORITHM)" in err, err


@needs_hosts
@pytest.mark.parametrize("text, where, sentence", [
    (None, "h0,h1", "No such file or directory"),
    ("", "h0,h1", "it is empty"),
    (HEAD + RING, "h0,h1", "it is not whole: its last line is not 'end'"),
    ("aiacc-algorithm-table 7\nend\n", "h0,h1", "it has version 7, and this build reads version 1; make it again with aiacc-tune"),
    (HEAD + RING.replace("ring", "rings") + "end\n", "h0,h1", "line 6: allreduce has no algorithm 'rings' in this build"),
    (HEAD.replace("streams 1", "streams 4") + RING + "end\n", "h0,h1", "AIACC_TCP_STREAMS 4, and this job has 1"),
    (HEAD.replace("tcp", "ucx") + RING + "end\n", "h0,h1", "transport ucx, and this job has tcp"),
])
def test_a_table_that_cannot_be_used_is_one_warning(hosts, tmp_path, text, where, sentence):
    table = tmp_path / "table"
    if text is not None:
        table.write_text(text)
    err = perf(hosts, where, table)
    told = [line for line in err.splitlines() if "AIACC_ALGORITHM_TABLE" in line]
    assert len(told) == 1 and sentence in told[0] and "algorithms are chosen as without it" in told[0], err
    assert err.count(BY_THRESHOLDS) == 1, err


@needs_hosts
def test_what_aiacc_tune_cannot_do(hosts, tmp_path):
    def refused(*words, where="h0,h1"):
        code, out, err = Job(["--launch-agent", hosts.enter, "-H", where, TUNE, *SHORT, *words]).finish()
        return code, out, [line for line in err.splitlines() if line.startswith("aiacc-tune: ") or ": aiacc-tune: " in line]
    kept = tmp_path / "kept"
    kept.write_text("what was there")
    code, out, told = refused("--hosts", "3", kept)
    assert (code, out, told) == (2, "", ["aiacc-tune: --hosts has 3, and the job has 2 hosts"])
    code, out, told = refused(tmp_path / "no" / "table")
    assert (code, out) == (3, "") and told == [f"aiacc-tune: cannot write {tmp_path}/no/table: No such file or directory"]
    code, out, told = refused(kept, where="h0:2")
    assert (code, out, told) == (2, "", ["aiacc-tune: all ranks are on one host; give two hosts or more (aiaccrun -H a:1,b:1)"])
    code, out, told = refused(kept, where="h0:1,h1:2")
    assert (code, out, told) == (2, "", ["aiacc-tune: a host has 2 ranks; give each host one (aiaccrun -H a:1,b:1)"])
    assert kept.read_text() == "what was there"


@pytest.mark.parametrize("words, sentence", [
    ([], "give the FILE to write"),
    (["a", "b"], "there is one FILE to write, and 'b' comes after it"),
    (["-c", "barrier", "a"], "-c takes allreduce, reduce, broadcast, allgather, reduce-scatter, alltoall, gather, scatter, not 'barrier'"),
    (["--hosts", "1", "a"], "--hosts takes whole numbers from 2 to 1048576, not '1'"),
    (["-b", "0", "a"], "-b takes a size from 4 to 4G"),
    (["-b", "2M", "-e", "1M", "a"], "the smallest size, 2M, is above the largest, 1M"),
    (["--round", "3", "a"], "the nearest one is"),
])
def test_usage(words, sentence):
    run = subprocess.run([TUNE, *words], env=CLEAN, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2 and sentence in run.stderr and run.stderr.count("\n") == 1 and run.stdout == "", run.stderr


def test_help_and_manual_have_the_same_options():
    text = subprocess.run([TUNE, "--help"], env=CLEAN, capture_output=True, text=True, check=True).stdout
    page = (STAGE / "share/man/man1/aiacc-tune.1").read_text()
    options = re.search(r"^\.Sh OPTIONS\n(.*?)^\.Sh ", page, re.S | re.M)[1]
    of_page = [re.sub(r" Ar ", " ", re.sub(r"Fl ", "-", item)).replace(" ,", ",") for item in re.findall(r"^\.It (.*)$", options, re.M)]
    assert re.findall(r"^  (-.*?)(?:  |$)", text, re.M) == of_page
