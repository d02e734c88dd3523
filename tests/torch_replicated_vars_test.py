"""ReplicatedVarsOptimizer and its learning rates, with each version of torch."""
import pytest

from python_support import check_job, each_torch_with


@pytest.mark.parametrize("python, ranks", each_torch_with(1, 3))
def test_replicated_vars(python, ranks):
    check_job(python, ranks, "torch_replicated_vars.py")
