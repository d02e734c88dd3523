"""tests/run itself: what it prints at the end, over tests of each kind."""
import os
import pathlib
import re
import subprocess

from launcher_support import with_longer_limits

RUN = pathlib.Path(os.environ["AIACC_SOURCE"]) / "tests/run"

# A gtest program, as far as its report is concerned.
PROGRAM = """#!/bin/sh
for word; do case $word in --gtest_output=json:*) report=${word#*json:} ;; esac; done
cat >"$report" <<'END'
{"testsuites": [{"name": "Suite", "testsuite": [
  {"name": "Fast", "status": "RUN", "result": "COMPLETED", "time": "0.001s"},
  {"name": "Slow", "status": "RUN", "result": "COMPLETED", "time": "9.500s"},
  {"name": "DISABLED_Never", "status": "NOTRUN", "result": "SUPPRESSED", "time": "0s"}]}]}
END
"""


def test_the_ten_slowest_come_before_the_last_line(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/some_test.py").write_text(
        "import time, pytest\n"
        "@pytest.mark.parametrize('n', range(12))\ndef test_quick(n): pass\n"
        "def test_slow(): time.sleep(0.3)\n"
        "def test_broken(): assert False\n")
    (tmp_path / "tests/file_test.py").write_text("import pytest\npytest.skip('it lacks a thing', allow_module_level=True)\n")
    for name, text in (("tests/shell_test.sh", "#!/bin/sh\nsleep 2\n"), ("program", PROGRAM)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "AIACC_SOURCE": str(tmp_path), "AIACC_BUILD": str(tmp_path)}
    run = subprocess.run([RUN, "--programs", "program"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    lines = run.stdout.splitlines()
    assert run.returncode == 1
    assert lines[-1] == "16 passed, 1 failed, 2 skipped"
    assert "skipped tests/file_test.py::file_test: it lacks a thing" in lines
    table = [line.split() for line in lines[lines.index("the slowest tests:") + 1:-2]]
    times = {name: float(seconds) for seconds, _, name in table}
    assert len(table) == 10 and list(times.values()) == sorted(times.values(), reverse=True) and table[0][1] == "s"
    assert times["Suite.Slow"] == 9.5 and times["tests/shell_test.sh"] >= 2 and times["tests/some_test.py::test_slow"] >= 0.3
    assert re.fullmatch(r"in \d+\.\d s", lines[-2])


def test_those_of_the_launcher_alone(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/launcher_some_test.py").write_text("def test_this(): pass\n")
    (tmp_path / "tests/other_test.py").write_text("def test_that(): pass\n")
    environment = {**os.environ, "AIACC_SOURCE": str(tmp_path), "AIACC_BUILD": str(tmp_path)}
    run = subprocess.run([RUN, "test_this"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert (run.returncode, run.stdout.splitlines()[-1]) == (0, "1 passed, 0 failed, 0 skipped"), run.stdout


def test_cores_share_the_unit_tests_alone_in_parts(tmp_path):
    (tmp_path / "program").write_text(
        "#!/bin/sh\nfor word; do case $word in --gtest_output=json:*) report=${word#*json:} ;; esac; done\n"
        f"test $GTEST_TOTAL_SHARDS = {2 * os.cpu_count()} || exit 1\n"
        'echo "{\\"testsuites\\": [{\\"name\\": \\"Suite\\", \\"testsuite\\": [{\\"name\\": \\"Part$GTEST_SHARD_INDEX\\", \\"status\\": \\"RUN\\",'
        ' \\"result\\": \\"COMPLETED\\", \\"time\\": \\"0.5s\\"}]}]}" >"$report"\n')
    (tmp_path / "program").chmod(0o755)
    environment = {**os.environ, "AIACC_SOURCE": str(tmp_path), "AIACC_BUILD": str(tmp_path)}
    run = subprocess.run([RUN, "--short", "--programs", "program"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                         timeout=100)
    parts = 2 * os.cpu_count()
    assert (run.returncode, run.stdout.splitlines()[-1]) == (0, f"{parts} passed, 0 failed, 0 skipped"), run.stdout
    assert len(set(re.findall(r"Suite\.Part\d+", run.stdout))) == min(parts, 10), run.stdout


def test_the_test_in_which_a_program_hangs_is_named(tmp_path):
    (tmp_path / "program").write_text('#!/bin/sh\ncase "$*" in *brief*) ;; *) echo "[ RUN      ] Suite.Hangs" ;; esac\nsleep 100\n')
    (tmp_path / "program").chmod(0o755)

    def attempt(limit):
        environment = {**os.environ, "AIACC_SOURCE": str(tmp_path), "AIACC_BUILD": str(tmp_path), "AIACC_TEST_TIMEOUT_S": str(limit)}
        run = subprocess.run([RUN, "--short", "--programs", "program"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                             timeout=100)
        assert run.returncode == 1 and f"ended by the {limit} s limit" in run.stdout, run.stdout
        return run.stdout
    assert "Suite.Hangs" in with_longer_limits(attempt, lambda said: "Suite.Hangs" in said, 1)


def test_a_program_whose_tests_end_one_after_the_other_has_a_limit_for_each(tmp_path):
    """All together take longer than one may."""
    def attempt(limit, seconds):
        (tmp_path / "program").write_text(PROGRAM.replace("#!/bin/sh\n", f"#!/bin/sh\nfor i in $(seq {seconds}); do sleep 1; echo $i; done\n"))
        (tmp_path / "program").chmod(0o755)
        environment = {**os.environ, "AIACC_SOURCE": str(tmp_path), "AIACC_BUILD": str(tmp_path), "AIACC_TEST_TIMEOUT_S": str(limit)}
        return subprocess.run([RUN, "--short", "--programs", "program"], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=300)
    run = with_longer_limits(lambda limit: attempt(limit, limit + 2), lambda run: run.returncode == 0, 6)
    assert run.returncode == 0, run.stdout
    run = attempt(1, 8)
    assert run.returncode == 1 and "ended by the 1 s limit" in run.stdout, run.stdout
