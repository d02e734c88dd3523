"""What is installed works where it was put, also when that is not the place that configure was told."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

STAGE = pathlib.Path(os.environ["AIACC_STAGE"])


def test_pkg_config_tells_where_it_was_installed(tmp_path):
    here = tmp_path / "here"
    assert flags_of_installation(here, f"prefix={here}") == [f"-I{here}/include", f"-L{here}/lib", f"-Wl,-rpath,{here}/lib", "-laiacc"]
    # A distribution's package: the loader looks there.
    assert flags_of_installation(tmp_path / "there/usr", "prefix=/usr", f"DESTDIR={tmp_path}/there") == ["-laiacc"]


def flags_of_installation(where, *variables):
    subprocess.run(["make", "-C", os.environ["AIACC_BUILD"], "install-data-local", *variables], capture_output=True, check=True)
    return subprocess.run(["pkg-config", "--cflags", "--libs", "aiacc"], env={**os.environ, "PKG_CONFIG_PATH": f"{where}/lib/pkgconfig"},
                          capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake here")
def test_cmake_builds_the_manual_s_example(tmp_path):
    page = (pathlib.Path(os.environ["AIACC_SOURCE"]) / "man/aiacc.7").read_text()
    program, lists = (re.search(rf"^\.Bd -literal -offset indent\n({first}.*?)^\.Ed$", page, re.S | re.M)[1] for first in ("#include", "find_package"))
    (tmp_path / "sum.c").write_text(program.replace("\\e", "\\"))
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.16)\nproject(sum C)\n" + lists)
    moved = (STAGE / "lib/pkgconfig/aiacc.pc").read_text().replace("prefix=/usr/local\n", f"prefix={STAGE}\n")
    (tmp_path / "aiacc.pc").write_text(moved)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIACC_", "MAKE", "MFLAGS"))}
    for words in (["-S", tmp_path, "-B", tmp_path / "build"], ["--build", tmp_path / "build"]):
        built = subprocess.run(["cmake", *words], env={**clean, "PKG_CONFIG_PATH": tmp_path}, capture_output=True, text=True, timeout=100)
        assert built.returncode == 0, built.stdout + built.stderr
    run = subprocess.run([STAGE / "bin/aiaccrun", "-np", "2", tmp_path / "build/sum"], env=clean,
                         capture_output=True, text=True, timeout=60)
    assert (run.returncode, sorted(run.stdout.splitlines())) == (0, [f"rank {rank}: the sum of all ranks is 1" for rank in range(2)]), run.stderr


def test_the_example_finds_its_data(tmp_path):
    """The stage is /usr/local moved to another folder."""
    run = subprocess.run([STAGE / "bin/aiaccrun", "-np", "1", STAGE / "bin/aiacc-digits", "--epochs", "1"], cwd=tmp_path,
                         capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr


def test_configure_refuses_a_prefix_with_a_blank(tmp_path):
    """libtool would fail, after everything is built."""
    configure = pathlib.Path(os.environ["AIACC_SOURCE"], "configure")
    run = subprocess.run([configure, f"--prefix={tmp_path}/a b"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert run.returncode == 1 and f"'{tmp_path}/a b' has a blank" in run.stderr, run.stderr


@pytest.mark.parametrize("words", ["aiaccrun --help", "aiacc-info", "aiacc-info --version", "aiacc-perf --help", "aiacc-tune --help"])
def test_a_program_says_that_its_output_is_lost(words):
    program, *options = words.split()
    if not (STAGE / "bin" / program).exists():
        pytest.skip(f"{program} is not part of this build")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AIACC_")}
    with open("/dev/full", "wb") as full:
        run = subprocess.run([STAGE / "bin" / program, *options], env=clean, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert run.returncode == (125 if program == "aiaccrun" else 3)
    assert run.stderr.startswith(f"{program}: ") and "cannot write to standard output: No space left on device" in run.stderr
