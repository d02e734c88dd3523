"""What the checks of aiacc.mxnet have in common."""
import mxnet as mx
import numpy as np

import aiacc.mxnet as hvd
import rank_checks
from rank_checks import raises  # noqa: F401: for the programs


def run(functions, words):
    """As rank_checks.run."""
    rank_checks.run(hvd, functions, words)


def numbers(given):
    return given.asnumpy() if isinstance(given, mx.nd.NDArray) else np.asarray(given)


def equal(a, b):
    assert numbers(a).shape == numbers(b).shape and (numbers(a) == numbers(b)).all(), (a, b)


def near(one, other, tolerance=1e-6):
    """Relative to the largest."""
    one, other = numbers(one).astype(np.float64), numbers(other).astype(np.float64)
    apart = np.abs(one - other).max()
    assert one.shape == other.shape and apart <= tolerance * max(1.0, np.abs(other).max()), apart


def mine(all_of, parts):
    """This rank's rows, where rank r has parts[r]."""
    begin = sum(parts[:hvd.rank()])
    return all_of[begin:begin + parts[hvd.rank()]]
