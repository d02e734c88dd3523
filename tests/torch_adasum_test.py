"""op=Adasum of aiacc.torch, run by ranks on one host."""
import pytest

from python_support import check_job, each_torch


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("python", each_torch())
def test_adasum(python, ranks):
    check_job(python, ranks, "torch_adasum.py")
