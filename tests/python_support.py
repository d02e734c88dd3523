"""What the tests of the Python package share: interpreters that have torch, and jobs of Python ranks."""
import functools
import os
import pathlib
import re
import subprocess

import pytest

from launcher_support import STAGE, Job, reachable

SOURCE = pathlib.Path(os.environ["AIACC_SOURCE"])
PACKAGE = reachable(SOURCE / "bindings/python")
ENVIRONMENT = {"AIACC_LIBRARY": str(STAGE / "lib/libaiacc.so"), "PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1",
               "AIACC_TORCH_SHIM": "0", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore::UserWarning:torch,ignore:This process:DeprecationWarning"}
NO_TORCH = "no Python with torch: `make torch-venv' makes one, apt-get install python3-torch too, and TORCH_PYTHON names another"


# Without its import, which takes seconds and is asked for by a score of files of tests.
VERSION = """import importlib.util, pathlib, runpy
torch = pathlib.Path(importlib.util.find_spec("torch").origin)
print(runpy.run_path(str(torch.with_name("version.py")))["__version__"])
"""


@functools.lru_cache(None)
def torch_version(python):
    """None: it has no torch."""
    try:
        asked = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, timeout=100)
    except OSError:
        return None
    return asked.stdout.strip() if asked.returncode == 0 else None


def torch_pythons():
    """Interpreters with different versions of torch: that of `make torch-venv', that of TORCH_PYTHON, and the system's."""
    versions = {}
    for python in (os.path.join(os.environ["AIACC_BUILD"], "torch-venv/bin/python"), os.environ.get("TORCH_PYTHON", ""), "/usr/bin/python3"):
        if python and (version := torch_version(python)) is not None:
            versions.setdefault(version, python)
    return versions


def each_torch():
    """A parameter `python` for each of them; without any, a skip with its reason."""
    found = torch_pythons()
    if not found:
        return [pytest.param(None, marks=pytest.mark.skip(reason=NO_TORCH))]
    return [pytest.param(python, id=version) for version, python in found.items()]


def each_torch_with(*numbers):
    """Parameters `python` and `ranks`: the first torch with each of these numbers of ranks, any other with the last of them."""
    return [pytest.param(*one.values, ranks, id=f"{one.id or 'none'}-{ranks}", marks=one.marks)
            for place, one in enumerate(each_torch()) for ranks in (numbers if place == 0 else numbers[-1:])]


NO_MXNET = "no Python with MXNet 1.9: `make mxnet-venv' makes one, and MXNET_PYTHON names another"
MXNET_ENVIRONMENT = {"PYTHONWARNINGS": "ignore", "MXNET_SUBGRAPH_VERBOSE": "0", "AIACC_LOG": "error"}


@functools.lru_cache(None)
def _python_with(package, reason):
    """An interpreter that has it: that of PACKAGE_PYTHON, or of `make PACKAGE-venv'. Without any, a skip with the reason."""
    for python in (os.environ.get(f"{package.upper()}_PYTHON", ""), os.path.join(os.environ["AIACC_BUILD"], f"{package}-venv/bin/python")):
        try:
            found = [python, "-c", f"import importlib.util; importlib.util.find_spec('{package}').origin"]
            if python and subprocess.run(found, capture_output=True, timeout=100).returncode == 0:
                return python
        except OSError:
            pass
    pytest.skip(reason)


def mxnet_python():
    return _python_with("mxnet", NO_MXNET)


NO_TENSORFLOW = "no Python with TensorFlow: `make tensorflow-venv' makes one, and TENSORFLOW_PYTHON names another"
TENSORFLOW_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "TF_ENABLE_ONEDNN_OPTS": "0", "PYTHONWARNINGS": "ignore::DeprecationWarning"}


def tensorflow_python():
    return _python_with("tensorflow", NO_TENSORFLOW)


def without_tensorflows_words(err):
    """Lines without what TensorFlow says of the processor and of devices that are missing, and of errors that it passes on."""
    return [line for line in err.splitlines() if not re.match(r"WARNING: All log messages before absl|[IWE]\d{4} |To enable the following instructions|\s*\[\[\{\{node", line)]


PATIENCE_S = 300  # with a job that hangs: the longest takes 40 s where others have both cores
PATIENCE_WITH_SEVERAL_S = 500  # less than tests/run allows: several programs take 25 s there


def python_job(python, ranks, program, *words, user="self", env=None, options=(), patience_s=PATIENCE_S):
    """(exit code, stdout, stderr) of a job whose ranks are Python processes."""
    command = ["--quiet", "-np", ranks, *options, python, *([PACKAGE_PROGRAMS / program] if program.endswith(".py") else ["-c", program]), *words]
    return Job(command, user=user, env={**ENVIRONMENT, **(env or {})}).finish(timeout=patience_s)


PACKAGE_PROGRAMS = reachable(SOURCE / "tests/programs")


def check_job(python, ranks, program, *words, **kwargs):
    """Each rank of it says "all is well" at its end and nothing else, and the job says nothing. MXNet may say that its own update of
    row-sparse gradients leaves other rows alone."""
    check_end(1, ranks, *python_job(python, ranks, program, *words, **kwargs))


def check_jobs(python, ranks, programs, env=None):
    """Each of the programs as check_job, in one job: the start of a framework is the most of most of them."""
    check_end(len(programs), ranks, *python_job(python, ranks, "several.py", *programs, env=env, patience_s=PATIENCE_WITH_SEVERAL_S))


def check_end(programs, ranks, code, out, err):
    said = [line for line in without_tensorflows_words(err) if "lazy_update = True detected" not in line]
    assert (code, out, said) == (0, "all is well\n" * (ranks * programs), []), f"exit code {code}\n{out}\n{err}"
