"""The KVStores of aiacc.mxnet, run by ranks on one host."""
import pytest

from python_support import MXNET_ENVIRONMENT, SOURCE, mxnet_python, python_job


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_stores(ranks):
    words = [] if ranks == 4 else ["check_an_embedding_of_row_sparse_gradients"]
    code, out, err = python_job(mxnet_python(), ranks, "mxnet_store.py", *words, env={**MXNET_ENVIRONMENT, "DIGITS": str(SOURCE / "examples/digits/digits.txt")})
    said = [line for line in err.splitlines() if "lazy_update = True detected" not in line]  # MXNet's, of its own update of rows
    assert (code, out, said) == (0, "all is well\n" * ranks, []), f"exit code {code}\n{out}\n{err}"
