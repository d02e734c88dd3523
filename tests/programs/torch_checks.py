"""Runs the functions check_... of a rank's program one after another; the ranks call them in one order."""
import sys
import traceback

import torch

import aiacc.torch as hvd
import hang_report


def run(functions, words):
    torch.set_num_threads(1)
    if hasattr(torch.sparse, "check_sparse_tensor_invariants"):
        torch.sparse.check_sparse_tensor_invariants.enable()
    hvd.init()
    for name in [name for name in functions if name.startswith("check_") and (not words or name in words)]:
        try:
            functions[name]()
        except Exception:
            traceback.print_exc()
            print(f"rank {hvd.rank()} of {hvd.size()}: {name} failed", file=sys.stderr, flush=True)
            sys.exit(1)
    hvd.shutdown()
    hang_report.over()
    print("all is well")


def raises(kind, function, *arguments, **keywords):
    """The text of the exception that the call raises."""
    try:
        function(*arguments, **keywords)
    except kind as error:
        return str(error)
    raise AssertionError(f"{getattr(function, '__name__', function)} did not raise {kind}")


def equal(a, b):
    assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, a.dtype, b.shape, b.dtype)
    assert torch.equal(a, b), (a, b)


def close(a, b, tolerance=1e-6):
    assert a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance), (a, b)
