"""The installed header compiles as C17 without a warning, the library does what it says from C, and exports nothing but the
functions of the header."""
import os
import pathlib
import re
import subprocess

import pytest

STAGE = pathlib.Path(os.environ["AIACC_STAGE"])
SOURCE = pathlib.Path(os.environ["AIACC_SOURCE"])
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("AIACC_", "OMPI_", "PMI", "SLURM_"))}


def compiled(source, into, *flags):
    program = into / pathlib.Path(source).stem
    subprocess.run(["cc", "-std=c17", "-Wall", "-Wextra", "-pedantic", "-Werror", *flags, f"-I{STAGE}/include", str(source),
                    "-o", str(program), f"-L{STAGE}/lib", f"-Wl,-rpath,{STAGE}/lib", "-laiacc", *sanitizer()], check=True)
    return program


def sanitizer():
    """A library built with a sanitizer wants its runtime in the program too."""
    needed = subprocess.run(["readelf", "-d", STAGE / "lib/libaiacc.so"], capture_output=True, text=True).stdout
    return [f"-fsanitize={name}" for name, library in (("address", "libasan"), ("thread", "libtsan"), ("undefined", "libubsan"))
            if library in needed]


def test_c17_program(tmp_path):
    program = compiled(SOURCE / "tests/abi_test.c", tmp_path)
    done = subprocess.run([program], env=CLEAN, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_header_is_c_and_cxx_of_many_years(tmp_path):
    for compiler, standard, suffix in (("cc", "c11", "c"), ("cc", "c17", "c"), ("c++", "c++11", "cc"), ("c++", "c++20", "cc")):
        file = tmp_path / f"one.{suffix}"
        file.write_text("#include <aiacc/aiacc.h>\nint main(void) { return aiacc_initialized(); }\n")
        subprocess.run([compiler, f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{STAGE}/include",
                        "-fsyntax-only", str(file)], check=True)


def declared():
    header = (STAGE / "include/aiacc/aiacc.h").read_text()
    return set(re.findall(r"^AIACC_API\b[^(;]*?\b(aiacc_\w+)\(", header, re.M))


def test_exports_are_the_listed_functions():
    listed = set(re.findall(r"^\s+(aiacc_\w+);", (SOURCE / "bindings/c/aiacc.map").read_text(), re.M))
    symbols = subprocess.run(["nm", "-D", "--defined-only", STAGE / "lib/libaiacc.so"], capture_output=True, text=True,
                             check=True).stdout.split("\n")
    exported = {line.split()[-1] for line in symbols if line and line.split()[-2] != "A"}
    assert {name.split("@")[0] for name in exported} == listed == declared()
    assert all(name.endswith("@@AIACC_0.1") for name in exported)


@pytest.mark.parametrize("how", ["return 0;", "exit(0);", "_exit(0);", "aiacc_request_t r; aiacc_barrier(AIACC_WORLD, 0, &r); exit(0);"])
def test_exit_without_finalize_neither_crashes_nor_hangs(tmp_path, how):
    file = tmp_path / "quick.c"
    file.write_text("#include <aiacc/aiacc.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
                    f"int main(void) {{ if (aiacc_init(NULL) != AIACC_OK) return 9; {how} return 0; }}\n")
    program = compiled(file, tmp_path, "-Wno-unreachable-code")
    assert subprocess.run([program], env=CLEAN, timeout=60).returncode == 0
