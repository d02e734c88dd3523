"""The examples in examples/pytorch that use torch.distributed train as the one in Horovod's style does."""
import os
import re
import subprocess

import pytest

from launcher_support import Job
from python_support import ENVIRONMENT, SOURCE, each_torch, torch_version

EXAMPLES = SOURCE / "examples/pytorch"


def losses(python, name, folder, epochs, ranks=2, options=()):
    result = folder / f"{name}.{ranks}"
    command = ["--quiet", "-np", ranks, python, EXAMPLES / f"{name}.py", "--data", SOURCE / "examples/digits/digits.txt", "--epochs", epochs,
               "--result", result, *options]
    code, out, err = Job(command, env=ENVIRONMENT).finish(timeout=250)
    assert (code, err) == (0, "") and out.count("epoch") == epochs, f"exit code {code}\n{out}\n{err}"
    return [[float(number) for number in line.split()] for line in result.read_text().splitlines()]


def same(found, expected):
    assert len(found) == len(expected)
    for (loss, accuracy), (other, others_accuracy) in zip(found, expected):
        assert abs(loss - other) < 1e-4 and abs(accuracy - others_accuracy) < 0.01, (found, expected)


@pytest.mark.parametrize("python", each_torch())
def test_data_parallel_learns_what_horovods_style_does(python, tmp_path):
    same(losses(python, "digits_ddp", tmp_path, 2), losses(python, "digits_horovod", tmp_path, 2))


@pytest.mark.parametrize("python", each_torch())
def test_sharded_parameters_learn_what_horovods_style_does(python, tmp_path):
    if tuple(map(int, re.match(r"(\d+)\.(\d+)", torch_version(python)).groups())) < (2, 6):
        pytest.skip("FSDP2 came with torch 2.6")
    same(losses(python, "digits_fsdp2", tmp_path, 1), losses(python, "digits_horovod", tmp_path, 1))


@pytest.mark.parametrize("python", each_torch()[:1])
def test_steps_of_each_rank_learn_as_much(python, tmp_path):
    """And with gradients of all ranks throughout, the same."""
    together = losses(python, "digits_horovod", tmp_path, 2)
    same(losses(python, "digits_local_sgd", tmp_path, 2, options=["--warmup-steps", 1000]), together)
    alone = losses(python, "digits_local_sgd", tmp_path, 2, options=["--outer-lr", 0.7, "--gossip", 2])
    assert together[-1][1] > 0.8 and alone[-1][1] > together[-1][1] - 0.05 and alone[0] != together[0], (alone, together)


@pytest.mark.parametrize("python", each_torch())
def test_data_parallel_under_torchrun(python, tmp_path):
    if "site-packages" not in subprocess.run([python, "-c", "import torch; print(torch.__file__)"], capture_output=True, text=True).stdout:
        pytest.skip("torchrun of Debian's python3-torch fails with Python 3.11, whatever it runs")
    done = subprocess.run([python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", EXAMPLES / "digits_ddp.py", "--data",
                           SOURCE / "examples/digits/digits.txt", "--epochs", "1"], capture_output=True, text=True, timeout=200,
                          env={**os.environ, **ENVIRONMENT})
    assert done.returncode == 0 and done.stdout.count("epoch") == 1, done.stdout + done.stderr
