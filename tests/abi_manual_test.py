"""The C ABI and its manual say the same: every function of aiacc.h has a page with the same types and parameter names, and
the program in aiacc(7) compiles and runs."""
import os
import pathlib
import re
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ["AIACC_SOURCE"])
STAGE = pathlib.Path(os.environ["AIACC_STAGE"])
HEADER = (SOURCE / "include/aiacc/aiacc.h").read_text()
PAGES = {page.name: page.read_text() for page in (SOURCE / "man").glob("*.3")}


def plain(text):
    return re.sub(r"\s+", " ", text).replace("* ", "*").strip()


def declared():
    functions = {}
    for result, name, parameters in re.findall(r"^AIACC_API ([\w ]+?\s?\*?)(aiacc_\w+)\(([^;]*)\);", HEADER, re.M | re.S):
        functions[name] = (plain(result), [plain(parameter) for parameter in parameters.split(",")])
    return functions


def documented():
    functions = {}
    for name, page in PAGES.items():
        for result, function, parameters in re.findall(r"^\.Ft (.*)\n\.Fn (\w+) (.*)$", page, re.M):
            assert function not in functions, f"{function} is in two pages"
            functions[function] = (plain(result), re.findall(r'"([^"]*)"', parameters))
    return functions


def test_every_function_has_its_synopsis():
    assert len(declared()) > 20
    quoted = {name: (result, parameters) for name, (result, parameters) in declared().items()}
    assert documented() == quoted


@pytest.mark.parametrize("page", sorted(PAGES))
def test_the_names_of_a_page_are_its_functions(page):
    names = re.findall(r"^\.Nm (aiacc_\w+)", PAGES[page].split(".Sh LIBRARY")[0], re.M)
    assert sorted(names) == sorted(re.findall(r"^\.Fn (\w+) \"", PAGES[page], re.M))


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_status_of_a_page_exists(page):
    for status in re.findall(r"AIACC_(?:ERR_\w+|OK|PENDING)", PAGES[page]):
        assert re.search(rf"^\s*{status} =", HEADER, re.M), status


def test_the_program_of_the_overview_runs(tmp_path):
    if not (STAGE / "bin/aiaccrun").exists():
        pytest.skip("aiaccrun is not part of this build")
    page = (SOURCE / "man/aiacc.7").read_text()
    program = re.search(r"^(#include .*?)^\.Ed", page, re.M | re.S)[1].replace("\\e", "\\")
    (tmp_path / "sum.c").write_text(program)
    environment = {**os.environ, "PKG_CONFIG_PATH": str(STAGE / "lib/pkgconfig")}
    flags = subprocess.run(["pkg-config", "--define-prefix", "--cflags", "--libs", "aiacc"], env=environment,
                           capture_output=True, text=True, check=True).stdout.split()
    warnings = ["-std=c17", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    subprocess.run(["cc", *warnings, tmp_path / "sum.c", *flags, f"-Wl,-rpath,{STAGE}/lib", "-o", tmp_path / "sum"], check=True)
    run = subprocess.run([STAGE / "bin/aiaccrun", "-np", "4", tmp_path / "sum"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == [f"rank {rank}: the sum of all ranks is 6" for rank in range(4)]
