"""What the checks of aiacc.torch have in common."""
import torch

import aiacc.torch as hvd
import rank_checks
from rank_checks import raises  # noqa: F401: for the programs


def version():
    """Of torch: (2, 13)."""
    return tuple(map(int, torch.__version__.split(".")[:2]))


def run(functions, words):
    """As rank_checks.run."""
    torch.set_num_threads(1)
    if hasattr(torch.sparse, "check_sparse_tensor_invariants"):
        torch.sparse.check_sparse_tensor_invariants.enable()
    rank_checks.run(hvd, functions, words)


def equal(a, b):
    assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, a.dtype, b.shape, b.dtype)
    assert torch.equal(a, b), (a, b)


def close(a, b, tolerance=1e-6):
    assert a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance), (a, b)


def same(model, reference, tolerance=1e-5):
    """In each parameter."""
    for (name, one), other in zip(model.named_parameters(), reference.parameters()):
        assert torch.allclose(one, other, rtol=tolerance, atol=tolerance), (name, (one - other).abs().max())
