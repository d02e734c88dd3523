"""Helpers of Horovod that scripts import beside its operations. Nothing of aiacc is compiled for a framework, so checks find all well."""
from __future__ import annotations

import importlib.util
from typing import Any

from aiacc._arguments import refused, whole


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the binding of the framework works here: torch, tensorflow, keras (that of TensorFlow) or mxnet."""
    package = {"torch": "torch", "tensorflow": "tensorflow", "keras": "tensorflow", "mxnet": "mxnet"}.get(str(ext_base_name))
    return package is not None and importlib.util.find_spec(package) is not None


def check_extension(ext_name: str, ext_env_var: str = "", pkg_path: str = "", *args: Any) -> None:
    """Raises an ImportError if the binding, as "horovod.torch", does not work here."""
    if not isinstance(ext_name, str):
        raise refused("ext_name", ext_name, "the name of a binding, as horovod.torch")
    package, _, name = ext_name.rpartition(".")
    if not extension_available(name):
        package = package or "horovod"
        raise ImportError(f"{package}.{name}: aiacc provides {package}.torch, which needs PyTorch, {package}.tensorflow, which needs TensorFlow, and "
                          f"{package}.mxnet, which needs MXNet")


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether operations take tensors on GPUs."""
    return False


def num_rank_is_power_2(num_rank: int) -> bool:
    num_rank = whole("num_rank", num_rank)
    return num_rank != 0 and num_rank & (num_rank - 1) == 0
