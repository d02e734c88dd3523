"""The floor check passes on this tree, and fails for each thing that it is there to find."""
import os
import pathlib
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ["AIACC_SOURCE"])


def check(root):
    done = subprocess.run([SOURCE / "tests/floors", root], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_this_tree_keeps_its_floors():
    code, output = check(SOURCE)
    assert code == 0, output


@pytest.mark.parametrize("path, line, says", [
    ("base/a.h", '#include "transports/message.h"', "transports is above base"),
    ("base/a.h", '#include <runtime/bootstrap/bootstrap.h>', "runtime is above base"),
    ("collectives/a.cc", '#include "runtime/bootstrap/bootstrap.h"', "runtime is above collectives"),
    ("launcher/a.cc", '#include "bindings/c/handles.h"', "do not include each other"),
    ("runtime/a.cc", '#include "base/sim/sim.h"', "a simulator is not part of the product"),
    ("base/io/a.cc", '#include "base/sim/sim.h"', "a simulator is not part of the product"),
    ("runtime/a.cc", "std::thread helper(work);", "makes a thread"),
    ("transports/a.cc", "auto now = std::chrono::steady_clock::now();", "reads a clock"),
    ("launcher/a.cc", 'const char* home = getenv("HOME");', "reads the environment"),
    ("launcher/a.cc", "usleep(10);", "sleeps"),
    ("launcher/a.cc", "::poll(fds, 1, -1);", "polls"),
    ("collectives/a.cc", "int dice = rand();", "draws chance"),
])
def test_a_fault_is_found_at_its_line(tmp_path, path, line, says):
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(f"// A file.\n{line}\n")
    code, output = check(tmp_path)
    assert code == 1
    assert f"{path}:2: " in output and says in output


@pytest.mark.parametrize("unnamed, shared", [
    ("constexpr int kMany = 3;", "kMany"),
    ("struct Run {\n  int a;\n};", "Run"),
    ("int number_of(std::string_view text) { return 1; }", "number_of"),
    ("Task<void> slot(Operation& op, std::size_t index) {\n}", "slot"),
    ("struct Run {};\nTask<void> slot(Run& run) {\n}", "Run"),
])
def test_a_name_of_two_unnamed_namespaces_of_a_folder_is_found(tmp_path, unnamed, shared):
    (tmp_path / "runtime").mkdir()
    for name in ["a.cc", "b.cc", "a_test.cc"]:
        (tmp_path / "runtime" / name).write_text(f"namespace aiacc {{\nnamespace {{\n\n{unnamed}\n\n}}  // namespace\n}}\n")
    code, output = check(tmp_path)
    assert code == 1 and f"runtime/b.cc: {shared} is in an unnamed namespace of runtime/a.cc" in output
    assert "a_test.cc" not in output, "tests are compiled apart"


def test_functions_of_types_of_their_own_may_share_a_name(tmp_path):
    (tmp_path / "runtime").mkdir()
    for name in "ab":
        (tmp_path / f"runtime/{name}.cc").write_text(
            f"namespace {{\nstruct Run{name} {{\n  int a;\n}};\nvoid slot(Run{name}& run) {{}}\n}}  // namespace\n")
    code, output = check(tmp_path)
    assert code == 0, output


@pytest.mark.parametrize("path, line", [
    ("runtime/a.cc", '#include "base/error.h"'),
    ("runtime/a.cc", '#include "aiacc/aiacc.h"'),
    ("runtime/a_test.cc", '#include "base/sim/sim.h"'),
    ("transports/sim/a.cc", '#include "base/sim/sim.h"'),
    ("base/io/a.cc", "clock_gettime(CLOCK_MONOTONIC, &now);"),
    ("runtime/a.cc", "// getenv(3) is read by base/config"),
    ("runtime/a.cc", 'throw Error(code, "poll() failed");'),
    ("runtime/a.cc", "co_await sleep_for(loop, interval, stop);"),
    ("launcher/a.cc", "co_await loop.poll(fd);"),
    ("transports/sim/a.cc", "Random& random = world.random();"),
])
def test_what_is_allowed_passes(tmp_path, path, line):
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(line + "\n")
    if path.endswith("_test.cc"):
        file.with_name("b.cc").write_text("int b;\n")
    code, output = check(tmp_path)
    assert code == 0, output
