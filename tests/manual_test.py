"""The manual pages: linted, and true where a program can check it (launcher/cli/manual_test.cc compares aiaccrun(1) with tables)."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ["AIACC_SOURCE"])
AIACCRUN = pathlib.Path(os.environ["AIACC_STAGE"]) / "bin/aiaccrun"
PAGES = sorted((SOURCE / "man").glob("*.[1-8]"))
RUN_PAGE = (SOURCE / "man/aiaccrun.1").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_has_no_warning(page):
    if shutil.which("mandoc") is None:
        pytest.skip("mandoc is not installed")
    lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], capture_output=True, text=True)
    assert (lint.returncode, lint.stdout) == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_is_plain_text_of_its_name(page):
    text = page.read_bytes()
    assert text.isascii() and b"\t" not in text
    name, section = page.name.rsplit(".", 1)
    assert f".Dt {name.upper()} {section}\n".encode() in text


def example_commands():
    section = re.search(r"^\.Sh EXAMPLES\n(.*?)^\.Sh ", RUN_PAGE, re.S | re.M)[1]
    return re.findall(r"^\.Dl (aiaccrun .*)$", section, re.M)


@pytest.mark.parametrize("command", example_commands())
def test_example_parses(command, tmp_path):
    (tmp_path / "hosts").write_text("a slots=4\nb slots=4\n")
    words = shlex.split(command)
    run = subprocess.run([AIACCRUN, "--dry-run", *words[1:]], capture_output=True, text=True, cwd=tmp_path,
                         env={"PATH": "/usr/bin:/bin"})
    assert run.returncode == 0, run.stderr
    assert "plan (nothing is started)" in run.stdout


def test_there_are_examples():
    assert len(example_commands()) >= 8


def test_help_and_manual_have_the_same_options():
    text = subprocess.run([AIACCRUN, "--help"], capture_output=True, text=True, check=True).stdout
    of_help = re.findall(r"^  (-.*?)(?:  |$)", text, re.M)
    options = re.search(r"^\.Sh OPTIONS\n(.*?)^\.Ss ", RUN_PAGE, re.S | re.M)[1]
    of_page = [re.sub(r" Ar ", " ", re.sub(r"Fl ", "-", item)).replace(" ,", ",")
               for item in re.findall(r"^\.It (.*)$", options, re.M)]
    assert sorted(of_help) == sorted(of_page)


def test_each_message_id_is_said_somewhere():
    launcher = SOURCE / "launcher"
    names = set(re.findall(r"MessageKind\{MessageId::(k\w+)", (launcher / "cli/failure.cc").read_text()))
    said = "".join(file.read_text() for file in launcher.rglob("*.cc") if file.name != "failure.cc" and "_test" not in file.name)
    assert names and names == set(re.findall(r"MessageId::(k\w+)", said))
