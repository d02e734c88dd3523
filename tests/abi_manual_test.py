"""The C ABI and its manual say the same: every function of aiacc.h, gradient.h, kv.h, observe.h, softmax.h and syncbn.h has a page with the same types and parameter names in the
same order, every constant and every member of a structure is described, what pages name exists, and the program in aiacc(7)
compiles and runs."""
import os
import pathlib
import re
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ["AIACC_SOURCE"])
STAGE = pathlib.Path(os.environ["AIACC_STAGE"])
HEADER = "".join((SOURCE / "include/aiacc" / name).read_text() for name in ["aiacc.h", "gradient.h", "kv.h", "observe.h", "softmax.h", "syncbn.h"])
PAGES = {page.name: page.read_text() for page in (SOURCE / "man").glob("*.3")}
OVERVIEW = (SOURCE / "man/aiacc.7").read_text()
MANUAL = "".join(PAGES.values()) + OVERVIEW
CODE = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)


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


def constants():
    """Enumerators, and macros that are values."""
    values = re.findall(r"^\s+(AIACC_\w+) = -?\d+", CODE, re.M)
    return values + re.findall(r"^#define (AIACC_\w+) \S", CODE, re.M)


NOT_FOR_CALLERS = {"AIACC_API", "AIACC_ENUM_TYPE"}


def test_every_constant_is_described():
    found = set(constants()) - NOT_FOR_CALLERS
    assert {"AIACC_OK", "AIACC_BFLOAT16", "AIACC_WORLD", "AIACC_VERSION_MAJOR"} <= found
    described = set(re.findall(r"\bAIACC_\w+", MANUAL))
    assert found - described == set()


def test_every_constant_of_the_manual_exists():
    settings = set(re.findall(r"^\.It Ev (AIACC_\w+)", (SOURCE / "man/aiacc-env.7").read_text(), re.M))
    for name, page in [*PAGES.items(), ("aiacc.7", OVERVIEW)]:
        unknown = set(re.findall(r"\bAIACC_[A-Z0-9_]+\b", re.sub(r"^\.Dt .*", "", page, flags=re.M))) - set(constants()) - settings
        assert unknown == set(), name


def structures():
    return {name: re.findall(r"(\w+);", members) for members, name in re.findall(r"^typedef struct \w+ \{(.*?)^\} (\w+);", CODE, re.M | re.S)}


def test_every_member_of_a_structure_is_described():
    assert {"aiacc_init_attr_t", "aiacc_attr_t"} <= set(structures())
    for name, members in structures().items():
        pages = [page for page in PAGES.values() if name in page]
        for member in members:
            assert any(re.search(rf"^\.(?:It )?Fa (?:[^\n]*\W)?{member}\b", page, re.M) for page in pages), f"{name}: {member}"


def test_every_function_has_a_comment():
    """Its own, or that of the block of declarations in which it stands."""
    for block in re.split(r"\n\s*\n", HEADER):
        first = block.find("AIACC_API aiacc_") if "AIACC_API aiacc_" in block else block.find("\nAIACC_API ")
        if first > 0 or block.startswith("AIACC_API"):
            functions = re.findall(r"^AIACC_API [^(]*?(aiacc_\w+)\(", block, re.M)
            assert block.lstrip().startswith("/*") or functions[:2] == ["aiacc_rank", "aiacc_size"], functions


def test_the_overview_leads_to_every_page():
    named = set(re.findall(r"^\.It Xr (aiacc[\w.]+) 3", OVERVIEW, re.M))
    assert named == {page.removesuffix(".3") for page in PAGES}


def test_every_reference_leads_to_a_page():
    names = {f"{name} 3" for page in PAGES.values() for name in re.findall(r"^\.Nm (aiacc_\w+)", page, re.M)}
    names |= {page.name.replace(".", " ") for page in (SOURCE / "man").glob("*.[17]")}
    for page in (SOURCE / "man").glob("*.[137]"):
        for name, section in re.findall(r"^\.(?:It )?Xr (aiacc[\w-]*) (\d)", page.read_text(), re.M):
            assert f"{name} {section}" in names, f"{page.name} refers to {name}({section})"


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
    subprocess.run(["cc", *warnings, tmp_path / "sum.c", *flags, "-o", tmp_path / "sum"], check=True)
    run = subprocess.run([STAGE / "bin/aiaccrun", "-np", "4", tmp_path / "sum"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == [f"rank {rank}: the sum of all ranks is 6" for rank in range(4)]
