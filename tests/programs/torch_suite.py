"""torch's own DistributedTest, which its wheel has, with the back end aiacc in place of Gloo.

    WORLD_SIZE=3 python torch_suite.py [PATTERN...]     # of names of tests; default: all

Each test forks WORLD_SIZE ranks, which meet through a file. A line for each test, and at last "N passed, N failed, N skipped".
BACKEND=gloo runs the same on Gloo. In the text of torch's modules only the name of the back end is another, and the tests that
are left to MPI (alltoall of CPU tensors) run too."""
import dataclasses
import fnmatch
import importlib.util
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time
import types
import unittest

BACKEND = os.environ.setdefault("BACKEND", "aiacc")
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "60")
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MASTER_ADDR"] = "127.0.0.1"

import torch
import torch.distributed as dist
import torch.multiprocessing

import aiacc.torch  # noqa: F401: registers the back end

if importlib.util.find_spec("expecttest") is None:  # torch's tests want it for a class that these do not use
    sys.modules["expecttest"] = types.ModuleType("expecttest")
    sys.modules["expecttest"].TestCase = unittest.TestCase
    sys.modules["expecttest"].ACCEPT = False  # torch 1.13 asks for it


ON_CPU = "GPU_TESTS_ON_CPU" in os.environ


def without_gpu(text):
    """Tests that ask for a GPU of each rank, as most of those of DistributedDataParallel do, with tensors of the CPU instead."""
    text = re.sub(r"\bdevice=(self\.)?(rank|device_id|next_rank|0)\b", 'device="cpu"', text)
    text = re.sub(r"\.to\((self\.)?(rank|device_id)\)", '.to("cpu")', text)
    text = re.sub(r"torch\.device\((self\.rank|rank|next_rank|f?\"cuda[^\"]*\")\)", 'torch.device("cpu")', text)
    return re.sub(r"@(skip_if_lt_x_gpu|require_n_gpus_for_nccl_backend)\(.*\)|@skip_if_no_gpu", "", text)


def put_cpu_for_gpu():
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_, **__: self
    for name in ("set_device", "synchronize", "manual_seed"):
        setattr(torch.cuda, name, lambda *_, **__: None)
    parallel = torch.nn.parallel.DistributedDataParallel
    original = parallel.__init__

    def init(self, module, device_ids=None, output_device=None, *arguments, **keywords):
        original(self, module, None, None, *arguments, **keywords)
    parallel.__init__ = init


def load(name):
    """torch's module of this name, for this back end."""
    spec = importlib.util.find_spec(name)
    text = pathlib.Path(spec.origin).read_text()
    if BACKEND == "aiacc":
        for old, new in (('"gloo"', '"aiacc"'), ("    dist.Backend.GLOO,", '    "aiacc",'), ('BACKEND != "mpi"', 'BACKEND not in ("mpi", "aiacc")'),
                         ('backend_feature["plugin"] = set()', 'backend_feature["plugin"] = {"aiacc"}')):
            text = text.replace(old, new)
    if ON_CPU:
        text = without_gpu(text)
    module = types.ModuleType(name)
    module.__file__, module.__spec__, module.__package__ = spec.origin, spec, name.rpartition(".")[0]
    sys.modules[name] = module
    exec(compile(text, spec.origin, "exec"), module.__dict__)
    return module


def let_defaults_be_mutable():
    """A class that torch 1.13's DistributedDataParallel loads has an object with members as a default, which dataclasses refuse since Python 3.11."""
    original = dataclasses._get_field

    def get_field(cls, name, *arguments):
        default = getattr(cls, name, None)
        kind = type(default.default if isinstance(default, dataclasses.Field) else default)
        if kind.__module__.startswith("torch.") and kind.__hash__ is None:
            kind.__hash__ = object.__hash__
        return original(cls, name, *arguments)
    dataclasses._get_field = get_field


if ON_CPU:
    put_cpu_for_gpu()
common = load("torch.testing._internal.common_distributed")
suite = load("torch.testing._internal.distributed.distributed_test")
if torch.__version__.startswith("1."):
    let_defaults_be_mutable()


class Tests(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class Report(unittest.TextTestResult):
    passed = 0

    def startTest(self, test):
        self.began = time.time()
        super().startTest(test)

    def say(self, what, test, more=""):
        print(f"{what:6} {time.time() - self.began:5.1f} s  {test._testMethodName}  {more}".rstrip(), flush=True)

    def addSuccess(self, test):
        self.passed += 1
        self.say("passed", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say("skipped", test, " ".join(reason.split()))

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.say("FAILED", test)
        print(self.failures[-1][1], flush=True)

    addError = addFailure


def main(patterns):
    os.environ["TEMP_DIR"] = temporary = tempfile.mkdtemp(prefix="torch_suite-")
    try:
        pathlib.Path(temporary, "barrier").touch()
        names = unittest.TestLoader().getTestCaseNames(Tests)
        unknown = [one for one in patterns if not fnmatch.filter(names, one)]
        if unknown:
            sys.exit(f"torch {torch.__version__} has no such test: {', '.join(unknown)}")
        chosen = [one for one in names if not patterns or any(fnmatch.fnmatch(one, pattern) for pattern in patterns)]
        with open(os.devnull, "w") as nowhere:
            runner = unittest.TextTestRunner(resultclass=Report, verbosity=0, stream=nowhere)
            result = runner.run(unittest.TestSuite(Tests(one) for one in chosen))
        print(f"{result.passed} passed, {len(result.failures)} failed, {len(result.skipped)} skipped")
        return 1 if result.failures else 0
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
