"""examples/arcface and examples/kvstore, built and started as their READMEs say."""
import os
import pathlib
import re
import subprocess

import pytest

from abi_process_test import CLEAN, STAGE, sanitizer

SOURCE = pathlib.Path(os.environ["AIACC_SOURCE"])


class Example:
    """A folder in which the README's first command, which builds it, was run."""

    def __init__(self, name, folder):
        self.name, self.folder = name, folder
        text = (SOURCE / "examples" / name / "README.md").read_text()
        build, self.command = re.findall(r"^    (.*)$", text, re.M)
        (folder / "examples").symlink_to(SOURCE / "examples")
        flags = [f"-I{STAGE}/include", f"-L{STAGE}/lib", f"-Wl,-rpath,{STAGE}/lib", "-laiacc", *sanitizer()]
        subprocess.run(build.replace("$(pkg-config --cflags --libs aiacc)", " ".join(flags)), shell=True, cwd=folder, check=True)

    def run(self, *changes):
        """The README's second command, which starts it, with some of its words changed."""
        command = self.command.replace("aiaccrun", str(STAGE / "bin/aiaccrun"))
        for old, new in changes:
            assert old in command
            command = command.replace(old, new)
        return subprocess.run(command, shell=True, cwd=self.folder, env=CLEAN, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)

    def result(self, *changes):
        """Loss and accuracy."""
        run = self.run(*changes)
        assert run.returncode == 0, run.stderr
        return [float(number) for number in re.search(r"final: .*loss ([\d.]+), test accuracy ([\d.]+) %", run.stdout).groups()]


@pytest.fixture(scope="module")
def arcface(tmp_path_factory):
    return Example("arcface", tmp_path_factory.mktemp("arcface"))


@pytest.fixture(scope="module")
def kvstore(tmp_path_factory):
    return Example("kvstore", tmp_path_factory.mktemp("kvstore"))


def test_a_split_classifier_learns_the_same_on_any_number_of_ranks(arcface):
    loss, accuracy = arcface.result(("-np 4", "-np 1"))
    assert loss < 0.3 and accuracy > 95
    for ranks in (2, 3, 11):  # of eleven ranks one has no class
        other = arcface.result(("-np 4", f"-np {ranks}"))
        assert abs(other[0] - loss) < 1e-9 and abs(other[1] - accuracy) < 0.3


def test_synchronous_servers_learn_the_same_with_any_number_of_ranks(kvstore):
    loss, accuracy = kvstore.result(("-np 4", "-np 1"))
    assert loss < 0.1 and accuracy > 95
    for ranks in (2, 3, 4):
        other = kvstore.result(("-np 4", f"-np {ranks}"))
        assert abs(other[0] - loss) < 1e-9 and abs(other[1] - accuracy) < 0.3


def test_ranks_that_only_serve_change_nothing(kvstore):
    loss, accuracy = kvstore.result(("-np 4", "-np 2"))
    other = kvstore.result(("-np 4", "-np 4 --servers 2"))
    assert abs(other[0] - loss) < 1e-9 and abs(other[1] - accuracy) < 0.3
    run = kvstore.run(("-np 4", "-np 4 --servers 2"))
    assert "final: 2 ranks" in run.stdout


def test_a_job_of_servers_alone_is_refused(kvstore):
    run = kvstore.run(("-np 4", "-np 2 -x AIACC_KV_SERVERS=2"))
    assert run.returncode != 0 and "AIACC_KV_SERVERS is 2, and there are 2 ranks: one at least is left to train" in run.stderr


@pytest.mark.parametrize("mode", ["async", "bounded"])
def test_asynchronous_servers_learn(kvstore, mode):
    loss, accuracy = kvstore.result(("-np 4", "-np 3"), ("sync", mode))
    assert loss < 0.5 and accuracy > 80


@pytest.mark.parametrize("name", ["arcface", "kvstore"])
def test_without_data_it_says_so(request, name):
    run = request.getfixturevalue(name).run(("examples/digits/digits.txt", "/nothing"), ("-np 4", "-np 2"))
    assert run.returncode != 0 and f"{name}: cannot open /nothing" in run.stderr


def test_another_mode_is_refused(kvstore):
    run = kvstore.run((" sync", " often"), ("-np 4", "-np 1"))
    assert run.returncode != 0 and "usage: kvstore IMAGES sync|async|bounded" in run.stderr
