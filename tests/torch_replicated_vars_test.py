"""ReplicatedVarsOptimizer and its learning rates, with each version of torch."""
import pytest

from python_support import check_job, each_torch


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("python", each_torch())
def test_replicated_vars(python, ranks):
    check_job(python, ranks, "torch_replicated_vars.py")
