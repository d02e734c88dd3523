"""aiacc.hpp as it is installed: compiles without a warning under each compiler that is here, and works in a job."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from abi_process_test import CLEAN, STAGE, sanitizer

SOURCE = pathlib.Path(os.environ["AIACC_SOURCE"])
# The one for Caffe is none of aiacc.hpp and needs Caffe's headers: caffe_test.py compiles it.
HEADERS = sorted({path.name for path in (SOURCE / "include/aiacc").glob("*.hpp")} - {"aiacc_caffe.hpp"})
AIACCRUN = STAGE / "bin/aiaccrun"
WARNINGS = ["-std=c++20", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-pedantic", "-Werror", f"-I{STAGE}/include"]
COMPILERS = [name for name in ("c++", "clang++", "clang++-16") if shutil.which(name)]


def compiled(source, into):
    program = into / pathlib.Path(source).stem
    subprocess.run(["c++", *WARNINGS, "-O1", "-g", source, "-o", program, f"-L{STAGE}/lib", f"-Wl,-rpath,{STAGE}/lib", "-laiacc", "-pthread",
                    *sanitizer()], check=True)
    return program


@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_compiler_warns(compiler):
    subprocess.run([compiler, *WARNINGS, "-fsyntax-only", SOURCE / "tests/programs/cpp.cc"], check=True)


def test_the_header_stands_alone_and_twice(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.cc").write_text("#include <aiacc/aiacc.hpp>\n" + ("int main() {}\n" if name == "a" else ""))
    subprocess.run(["c++", *WARNINGS, tmp_path / "a.cc", tmp_path / "b.cc", "-o", tmp_path / "both", f"-L{STAGE}/lib", "-laiacc", *sanitizer()],
                   check=True)


@pytest.mark.parametrize("header", HEADERS)
def test_a_part_stands_alone(header, tmp_path):
    (tmp_path / "alone.cc").write_text(f"#include <aiacc/{header}>\n")
    subprocess.run(["c++", *WARNINGS, "-fsyntax-only", tmp_path / "alone.cc"], check=True)


def test_the_whole_has_all_parts():
    whole = (SOURCE / "include/aiacc/aiacc.hpp").read_text()
    assert sorted(re.findall(r"#include <aiacc/(\w+\.hpp)>", whole)) == [name for name in HEADERS if name != "aiacc.hpp"]


def test_every_function_is_wrapped():
    functions = set(re.findall(r"^AIACC_API [\w \n]+?[\s*]+(aiacc_\w+)\(", (SOURCE / "include/aiacc/aiacc.h").read_text(), re.M))
    wrapped = {name for header in HEADERS for name in re.findall(r"\b(aiacc_\w+)\b", (SOURCE / "include/aiacc" / header).read_text())}
    assert len(functions) > 50 and functions - wrapped == {"aiacc_dtype_size"}  # which is sizeof


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled(SOURCE / "tests/programs/cpp.cc", tmp_path_factory.mktemp("cpp"))


@pytest.mark.skipif(not AIACCRUN.exists(), reason="aiaccrun is not part of this build")
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_of_it_in_a_job(program, ranks):
    run = subprocess.run([AIACCRUN, "--oversubscribe", "-np", str(ranks), program], env=CLEAN, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "all is well\n" * ranks


def test_the_example_of_the_manual_runs(tmp_path):
    if not AIACCRUN.exists():
        pytest.skip("aiaccrun is not part of this build")
    page = (SOURCE / "man/aiacc.hpp.3").read_text()
    (tmp_path / "example.cc").write_text(re.search(r"^(#include .*?)^\.Ed", page, re.M | re.S)[1].replace("\\e", "\\"))
    run = subprocess.run([AIACCRUN, "-np", "2", compiled(tmp_path / "example.cc", tmp_path)], env=CLEAN, capture_output=True, text=True, timeout=60)
    assert sorted(run.stdout.splitlines()) == ["rank 0 of 2: 1", "rank 1 of 2: 1"], run.stderr


THROWS = r"""
#include <aiacc/aiacc.hpp>
#include <cstdio>
int main() {
  try {
    aiacc::Context context;
    if (context.world().rank() == 1) throw std::runtime_error("rank 1 gave up");
    context.world().barrier();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 5;
  }
}
"""


@pytest.mark.skipif(not AIACCRUN.exists(), reason="aiaccrun is not part of this build")
def test_an_exception_ends_the_job(tmp_path):
    (tmp_path / "throws.cc").write_text(THROWS)
    run = subprocess.run([AIACCRUN, "-np", "2", compiled(tmp_path / "throws.cc", tmp_path)], env=CLEAN, capture_output=True, text=True, timeout=60)
    assert run.returncode == 5 and "rank 1 gave up" in run.stderr
