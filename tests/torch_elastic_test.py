"""Horovod's elastic training: errors that a job survives, and those that it does not."""
import pytest

from python_support import check_job, each_torch, python_job

QUIET = {"AIACC_LOG": "error"}


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("python", each_torch())
def test_elastic(python, ranks):
    check_job(python, ranks, "torch_elastic.py", env=QUIET)
