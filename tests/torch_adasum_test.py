"""op=Adasum of aiacc.torch, run by ranks on one host."""
import pytest

from python_support import check_job, each_torch_with


@pytest.mark.parametrize("python, ranks", each_torch_with(1, 2, 4))
def test_adasum(python, ranks):
    check_job(python, ranks, "torch_adasum.py")
