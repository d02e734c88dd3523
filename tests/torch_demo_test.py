"""What `make demo-torch` shows, with the last version of torch that is found: CI runs it with the first."""
import os
import re
import subprocess

import pytest

from launcher_support import STAGE
from python_support import PACKAGE, SOURCE, each_torch


@pytest.mark.parametrize("python", each_torch()[-1:])
def test_the_demo_reaches_97_percent_and_four_ranks_learn_what_one_does(python):
    demo = subprocess.run([SOURCE / "examples/pytorch/demo", STAGE / "bin", python, PACKAGE, SOURCE / "examples/digits/digits.txt"],
                          env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=250)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert all(re.search(rf"^step {step} of rank 0: [\d.]+ ms from its first gradient to its last result$", demo.stdout, re.M) for step in (1, 2, 12))
    assert len(re.findall(r"^  \S+\.weight +\|[ .nqpu]*#+[ .nqpu#]*\|$", demo.stdout, re.M)) >= 6
    assert len(re.findall(r"^epoch +\d+  loss [\d.]+  test accuracy +[\d.]+ %  +\d+ images/s$", demo.stdout, re.M)) == 16
    assert float(re.search(r"^largest difference: (\S+) ", demo.stdout, re.M)[1]) <= 1e-4
    assert all(float(one) >= 97 for one in re.findall(r"([\d.]+) % on ", demo.stdout))
