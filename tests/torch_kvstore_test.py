"""KVStore of aiacc.torch, run by ranks on one host."""
import pytest

from python_support import check_job, each_torch_with


@pytest.mark.parametrize("python, ranks", each_torch_with(1, 2, 3))
def test_store_of_tensors(python, ranks):
    check_job(python, ranks, "torch_kvstore.py")
