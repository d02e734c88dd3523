"""The layers of aiacc.torch, run by ranks on one host: SyncBatchNorm and ShardedSoftmax."""
import pytest

from python_support import check_jobs, each_torch_with


@pytest.mark.parametrize("python, ranks", each_torch_with(1, 2, 3))
def test_layers(python, ranks):
    check_jobs(python, ranks, ["torch_syncbn.py", "torch_softmax.py"], env={"AIACC_LOG": "error"})
