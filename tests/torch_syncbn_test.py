"""SyncBatchNorm of aiacc.torch, run by ranks on one host."""
import pytest

from python_support import each_torch_with, python_job


@pytest.mark.parametrize("python, ranks", each_torch_with(1, 2, 3))
def test_sync_batch_norm(python, ranks):
    code, out, err = python_job(python, ranks, "torch_syncbn.py", env={"AIACC_LOG": "error"})
    assert (code, out, err) == (0, "all is well\n" * ranks, ""), f"exit code {code}\n{out}\n{err}"
