"""The front door of a checkout counts what it compiles."""
import os
import pathlib
import re
import subprocess

import pytest

COUNTED = pathlib.Path(os.environ["AIACC_SOURCE"]) / "build-aux/make-counted"
pytestmark = pytest.mark.skipif(not COUNTED.exists(), reason="a tarball has no front door")

# The rules that automake makes, as far as they concern silent rules.
MAKEFILE = """
AM_V_CXX = $(am__v_CXX_$(V))
am__v_CXX_ = $(am__v_CXX_0)
am__v_CXX_0 = @echo "  CXX     " $@;
am__v_CXX_1 =
all: all-am
all-am: a.o b.o sub/c.o
check: all-am
\t$(MAKE) d.o
check-units: all-am d.o
other: a.o
%.o: %.cc
\t$(AM_V_CXX)cp $< $@
"""


def make(folder, *words):
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    run = subprocess.run([COUNTED, folder, *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return [line.split() for line in run.stdout.replace("[ ", "[").splitlines() if "CXX" in line]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "sub").mkdir()
    for name in ("a", "b", "sub/c", "d"):
        (tmp_path / f"{name}.cc").write_text("")
    return tmp_path


def test_each_unit_is_counted_once_with_several_at_a_time(folder):
    lines = make(folder, "check", "-j4")
    assert sorted(line[1] for line in lines) == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert sorted(line[2] for line in lines) == ["a.o", "b.o", "d.o", "sub/c.o"]
    assert make(folder, "check", "-j4") == []


def test_only_what_is_to_be_compiled_counts(folder):
    make(folder, "all")
    (folder / "b.o").unlink()
    assert make(folder, "all") == [["CXX", "[1/1]", "b.o"]]


def test_goals_that_are_not_known_are_passed_on_as_they_are(folder):
    assert make(folder, "other") == [["CXX", "a.o"]]


def test_a_failure_is_that_of_make(folder):
    (folder / "b.cc").unlink()
    run = subprocess.run([COUNTED, folder, "all"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2 and re.search("No rule to make target 'b.o'", run.stderr)
