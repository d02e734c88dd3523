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
        file.write_text("#include <aiacc/gradient.h>\n#include <aiacc/kv.h>\n#include <aiacc/observe.h>\n#include <aiacc/softmax.h>\n#include <aiacc/syncbn.h>\nint main(void) { return aiacc_initialized(); }\n")
        subprocess.run([compiler, f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{STAGE}/include",
                        "-fsyntax-only", str(file)], check=True)


def declared():
    header = "".join((STAGE / "include/aiacc" / name).read_text() for name in ["aiacc.h", "gradient.h", "kv.h", "observe.h", "softmax.h", "syncbn.h"])
    return set(re.findall(r"^AIACC_API\b[^(;]*?\b(aiacc_\w+)\(", header, re.M))


def test_exports_are_the_listed_functions():
    listed = set(re.findall(r"^\s+(aiacc_\w+);", (SOURCE / "bindings/c/aiacc.map").read_text(), re.M))
    symbols = subprocess.run(["nm", "-D", "--defined-only", STAGE / "lib/libaiacc.so"], capture_output=True, text=True,
                             check=True).stdout.split("\n")
    exported = {line.split()[-1] for line in symbols if line and line.split()[-2] != "A"}
    assert {name.split("@")[0] for name in exported} == listed == declared()
    assert all(name.endswith("@@AIACC_0.1") for name in exported)


QUICK = """
#include <aiacc/aiacc.h>
#include <stdlib.h>
#include <unistd.h>

static void told(aiacc_status_t status, const char* error, void* arg) { (void)status, (void)error, (void)arg, sleep(1); }

static aiacc_group_t group(void) {
  const int self = 0;
  aiacc_group_t made = AIACC_NULL;
  if (aiacc_group_create(AIACC_WORLD, 1, &self, NULL, &made) != AIACC_OK) _exit(8);
  return made;
}

static void call_back(aiacc_group_t on) {
  aiacc_attr_t attr = {0};
  attr.size = sizeof attr;
  attr.callback = told;
  if (aiacc_barrier(on, &attr, NULL) != AIACC_OK) _exit(7);
}

int main(void) {
  if (aiacc_init(NULL) != AIACC_OK) return 9;
  (void)group, (void)call_back;
  HOW
  return 0;
}
"""


@pytest.mark.parametrize("how", ["return 0;", "exit(0);", "_exit(0);", "aiacc_request_t r; aiacc_barrier(AIACC_WORLD, 0, &r); exit(0);",
                                 "group(); exit(0);", "call_back(group()); call_back(AIACC_WORLD); exit(0);",
                                 "static int word; aiacc_request_t r; aiacc_recv(&word, 1, AIACC_INT32, 0, 0, group(), 0, &r);"])
def test_exit_without_finalize_neither_crashes_nor_hangs(tmp_path, how):
    file = tmp_path / "quick.c"
    file.write_text(QUICK.replace("HOW", how))
    program = compiled(file, tmp_path, "-Wno-unreachable-code")
    assert subprocess.run([program], env=CLEAN, timeout=60).returncode == 0
