"""Helpers of Horovod that other packages import. Nothing of aiacc is compiled for a framework, so that its checks find all well."""
import contextlib
import os
import sysconfig
import warnings

from aiacc._horovod.util import check_extension, extension_available, gpu_available, num_rank_is_power_2  # noqa: F401
from horovod.common.basics import HorovodBasics


def get_ext_suffix():
    return sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def check_installed_version(name, version, exception=None):
    """Any version will do."""


def _built(name):
    return lambda verbose=False: bool(getattr(HorovodBasics(), name)())


mpi_built, gloo_built, nccl_built = _built("mpi_built"), _built("gloo_built"), _built("nccl_built")
ddl_built, ccl_built = _built("ddl_built"), _built("ccl_built")


@contextlib.contextmanager
def env(**kwargs):
    """Environment variables for a while; None unsets one."""
    before = {name: os.environ.get(name) for name in kwargs}

    def put(values):
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = str(value)
    put(kwargs)
    try:
        yield
    finally:
        put(before)


def get_average_backwards_compatibility_fun(reduce_ops):
    def op_of(op, average):
        if op is not None and average is not None:
            raise ValueError("average and op are both given: average is the older name, leave it out")
        if average is not None:
            warnings.warn("average is deprecated: use op=Average or op=Sum", DeprecationWarning, stacklevel=3)
            return reduce_ops.Average if average else reduce_ops.Sum
        return reduce_ops.Average if op is None else op
    return op_of


def split_list(values, num_parts):
    """Parts of even length, the longer ones first."""
    each, rest = divmod(len(values), num_parts)
    begins = [i * each + min(i, rest) for i in range(num_parts + 1)]
    return [values[begin:end] for begin, end in zip(begins, begins[1:])]


def is_iterable(x):
    try:
        iter(x)
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver, target):
    def numbers(text):
        return [int("".join(filter(str.isdigit, part)) or 0) for part in text.split("+")[0].split(".")[:3]]
    return numbers(ver) >= numbers(target)
