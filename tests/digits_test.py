"""The main job: the digit classifier learns, and learns the same whatever the number of ranks."""
import os
import pathlib
import re
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ["AIACC_SOURCE"])
BIN = pathlib.Path(os.environ["AIACC_STAGE"]) / "bin"
DATA = SOURCE / "examples/digits/digits.txt"


def train(ranks, tmp_path, *words):
    """(loss, accuracy, output) of a run."""
    result = tmp_path / f"result-{ranks}"
    run = subprocess.run([BIN / "aiaccrun", "-np", str(ranks), BIN / "aiacc-digits", "--data", DATA, "--result", result, *words],
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=250)
    assert run.returncode == 0, run.stderr
    loss, accuracy = map(float, result.read_text().split())
    return loss, accuracy, run.stdout


def test_four_ranks_reach_97_percent_and_agree_with_one():
    """What `make demo` shows."""
    demo = subprocess.run([SOURCE / "examples/digits/demo", BIN, DATA], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=250)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    final = re.findall(r"^final: loss ([\d.]+), test accuracy ([\d.]+) %$", demo.stdout, re.M)
    (loss4, accuracy4), (loss1, accuracy1) = [map(float, numbers) for numbers in final]
    assert accuracy1 >= 97 and accuracy4 >= 97
    assert abs(loss1 - loss4) <= 1e-5
    epochs = re.findall(r"^epoch +\d+  loss [\d.]+  test accuracy [\d.]+ %  +\d+ images/s  +[\d.]+ % in communication$", demo.stdout, re.M)
    assert len(epochs) == 60
    assert "\r" not in demo.stdout and "\033" not in demo.stdout, "plain lines when piped"

    lines = demo.stdout.splitlines()
    assert "digit classifier on 4 ranks" in lines[0] and lines[2] == "$ aiaccrun -np 4 aiacc-digits"
    assert lines[-1].startswith("How to go on: make demo-hosts")


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_batches_that_do_not_divide_are_shared_fairly(ranks, tmp_path):
    words = ["--epochs", "2", "--batch", "50"]
    loss1, accuracy1, _ = train(1, tmp_path, *words)
    loss, accuracy, _ = train(ranks, tmp_path, *words)
    assert abs(loss1 - loss) <= 1e-5 and accuracy == accuracy1


def test_the_same_seed_is_the_same_run_and_another_is_not(tmp_path):
    losses = [train(2, tmp_path, "--epochs", "1", "--seed", str(seed))[0] for seed in (5, 5, 6)]
    assert losses[0] == losses[1] != losses[2]


def test_bad_data_is_one_sentence(tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_text("012\n")
    run = subprocess.run([BIN / "aiaccrun", "-np", "2", BIN / "aiacc-digits", "--data", bad], stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, timeout=100)
    assert run.returncode == 1
    assert f"{bad}: line 1 is not 64 pixels and a digit" in run.stderr


def test_who_may_not_make_hosts_is_told_what_is_needed(tmp_path):
    """As an ordinary user where there are no namespaces for one: what makes them is replaced."""
    tools = {"id": "echo 1000", "unshare": 'echo "unshare: unshare failed: Operation not permitted" >&2; exit 1'}
    for name, body in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    demo = subprocess.run([SOURCE / "examples/digits/demo-hosts", BIN, DATA, SOURCE / "tests/namespace_hosts.py"], env=environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert (demo.returncode, demo.stdout) == (1, "")
    assert re.fullmatch(r"demo-hosts: [^\n]+ Operation not permitted; run it as root, or [^\n]+\n", demo.stderr), demo.stderr


def test_data_are_the_1797_images():
    lines = DATA.read_text().splitlines()
    assert len(lines) == 1797
    assert all(re.fullmatch(r"[0-9a-g]{64} [0-9]", line) for line in lines)
    assert [sum(line.endswith(f" {digit}") for line in lines) for digit in range(10)] == [
        178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
