"""aiaccrun --provide: scripts that import Horovod or Perseus run as they are."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import namespace_hosts
from launcher_lab_test import on
from launcher_support import STAGE, Job
from python_support import ENVIRONMENT, PATIENCE_S, SOURCE, each_torch, torch_version
from torch_optimizer_test import system_torch

# What `pip install` would not have brought: the ranks' Python knows neither aiacc nor where libaiacc is.
BARE = {name: value for name, value in ENVIRONMENT.items() if name not in ("AIACC_LIBRARY", "PYTHONPATH")}

HOROVOD = """
import horovod
import horovod.torch as hvd
from horovod.torch import Compression, elastic, mpi_ops
from horovod.torch.mpi_ops import allreduce, size
import horovod.torch.compression, horovod.torch.functions, horovod.torch.optimizer, horovod.torch.sync_batch_norm
from horovod.torch.elastic import ElasticSampler
from horovod.torch.elastic.sampler import ElasticSampler as same
from horovod.torch.elastic.state import TorchState
from horovod.common.basics import HorovodBasics
from horovod.common.exceptions import HorovodInternalError, HorovodVersionMismatchError, HostsUpdatedInterrupt
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import (check_extension, env, extension_available, gpu_available, is_version_greater_equal_than, num_rank_is_power_2,
                                 split_list)
import torch
assert tuple(map(int, horovod.__version__.split("."))) >= (0, 28) and hvd.__version__ == horovod.__version__
hvd.init()
assert allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2 and size() == mpi_ops.rank() + 2 - hvd.rank()
assert hvd.is_homogeneous() and HorovodBasics().rank() == hvd.rank() and HorovodBasics().Sum == hvd.Sum
assert same is hvd.ElasticSampler is ElasticSampler and global_process_set is hvd.global_process_set
import aiacc.torch
assert mpi_ops is aiacc.torch.mpi_ops and horovod.torch.mpi_ops is mpi_ops and HorovodInternalError is aiacc.torch.HorovodInternalError
assert issubclass(HorovodVersionMismatchError, ImportError) and issubclass(HostsUpdatedInterrupt, RuntimeError)
check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__ if "__file__" in globals() else "", "mpi_lib_v2")
assert extension_available("torch") and not extension_available("tensorflow") and not gpu_available("torch")
assert split_list(list(range(5)), 2) == [[0, 1, 2], [3, 4]] and num_rank_is_power_2(4) and not num_rank_is_power_2(6)
assert is_version_greater_equal_than("2.10.0+cpu", "2.9.1") and not is_version_greater_equal_than("1.13.0a0", "2.0.0")
from horovod.common.elastic import ObjectState, State, notification_manager, run_fn
from horovod.torch.elastic.state import get_handler_registry
assert elastic.TorchState is TorchState is aiacc.torch.elastic.TorchState and issubclass(TorchState, ObjectState) and elastic.run
class Listener:
    heard = None
    def on_hosts_updated(self, *what): self.heard = what
told, silent = Listener(), Listener()
notification_manager.init()
notification_manager.register_listener(told)
notification_manager.register_listener(silent)
notification_manager.remove_listener(silent)
def updates(state):
    notification_manager.handle_hosts_updated(7, 2)
    try: state.check_host_updates()
    except HostsUpdatedInterrupt: return told.heard, silent.heard
assert run_fn(updates, hvd.shutdown)(TorchState(step=0)) == ((7, 2), None)
from horovod.runner import run
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.runner.util.threads import in_thread, on_event
import threading
came = threading.Event()
on_event(came, lambda: came.clear()).join(0.0)
in_thread(came.set, name="sets it").join()
while came.is_set(): pass
stop, called = threading.Event(), []
thread = on_event(threading.Event(), called.append, (1,), stop=stop, check_stop_interval_s=0.01)
stop.set()
thread.join()
in_thread(lambda one: 1 // one, (0,), silent=True).join()
from horovod.data import AsyncDataLoaderMixin, BaseDataLoader
from horovod.data.data_loader_base import BaseDataLoader as base
class Batches(BaseDataLoader):
    def __len__(self): return 3
    def _iterate(self):
        for number in range(3): yield 1 // (2 - number) if ends_badly else number
    def _process_batch(self, batch): return batch * 10
class Ahead(AsyncDataLoaderMixin, Batches): pass
ends_badly = False
for loader in (Batches(), Ahead(), Ahead(1), Ahead(async_loader_queue_size=0)):
    assert list(loader) == list(loader) == [0, 10, 20] and len(loader) == 3 and isinstance(loader, base)
stopped = iter(loader := Ahead(1))
assert next(stopped) == 0
loader.close_async_loader()
assert list(stopped) in ([], [10])
ends_badly = True
try: list(Ahead(1))
except ZeroDivisionError: pass
else: raise AssertionError("the error of the thread is lost")
assert run is horovod.run and get_env_rank_and_size() == (hvd.rank(), hvd.size()) and not called
assert hvd.num_rank_is_power_2(8) and not hvd.gpu_available("torch") and hvd.check_extension is check_extension
print("all is well", flush=True)
"""

PERSEUS = """
import perseus.torch.horovod as hvd
import torch
hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
model(torch.ones(1, 2) * (1 + hvd.rank())).sum().backward()
optimizer.step()
assert hvd.local_rank() < hvd.size() == 2 and model.weight.grad.tolist() == [[1.5, 1.5]]
print("all is well", flush=True)
"""


def provided(python, program, *options, env=BARE):
    return Job(["--quiet", *(() if "-np" in options else ("-np", 2)), *options, python, "-c", program], env=env).finish(timeout=PATIENCE_S)


@pytest.mark.parametrize("packages, program", [("horovod", HOROVOD), ("perseus", PERSEUS), ("perseus,horovod", PERSEUS + HOROVOD.lstrip())],
                         ids=["horovod", "perseus", "both"])
@pytest.mark.parametrize("python", each_torch())
def test_scripts_run_as_they_are(python, packages, program):
    code, out, err = provided(python, program, "--provide", packages)
    assert (code, out, err) == (0, "all is well\n" * (2 * program.count("all is well")), ""), f"exit code {code}\n{out}\n{err}"


GLOO = """
import os, sys
assert not {"torch", "aiacc", "ctypes"} & set(sys.modules) and os.environ["SITE"] == "the user's" and "hers" in sys.modules["sitecustomize"].__file__
import torch, torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
TORCH_2 = int(torch.__version__.split(".")[0]) >= 2

def is_ours(group=None):
    return type(group or dist.distributed_c10d._get_default_group()).__name__ == "AiaccProcessGroup"

def make_theirs(store, rank, size, timeout):  # takes the part of NCCL
    return dist.ProcessGroupGloo(store, rank, size, timeout=timeout)

def child(number, size, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=number, world_size=size)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == size and is_ours()
    dist.barrier()

def main():
    dist.init_process_group("gloo", init_method="env://")
    assert is_ours()
    store = dist.distributed_c10d._get_default_store()  # of all worlds, as that of the second is not there before that of the first is gone
    def world(backend):
        dist.destroy_process_group()
        dist.init_process_group(backend, store=dist.PrefixStore(f"for {backend}", store), rank=int(os.environ["RANK"]), world_size=2)
    if TORCH_2:
        dist.Backend.register_backend("theirs", make_theirs, devices=["cpu"])
        world("theirs")
        single = [dist.new_group([one], backend="gloo") for one in (0, 1)][dist.get_rank()]
        assert is_ours(single) and not is_ours() and dist.get_backend() == "theirs" and dist.get_backend(single) == "gloo"
        dist.barrier()  # of Gloo: nobody leaves while the other still connects to it
    for backend in ("gloo", "cpu:gloo", None) if TORCH_2 else ("gloo",):
        world(backend)
        assert is_ours() and dist.get_backend() == (backend or "undefined") and dist.is_gloo_available()
        groups = [dist.new_group(), dist.new_group([1]), dist.new_group([0, 1], backend="gloo")]
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=groups[0])
        dist.broadcast(tensor, 1, group=groups[2])
        assert tensor.item() == 2 and is_ours(groups[0]) and dist.get_backend(groups[2]) == "gloo"
        assert dist.get_rank() == 0 or is_ours(groups[1])
        if TORCH_2:
            beside = dist.distributed_c10d._new_process_group_helper(
                group_size=1, group_rank=0, global_ranks_in_group=[], backend="gloo", store=dist.HashStore(), group_name=f"beside {backend}",
                timeout=dist.distributed_c10d.default_pg_timeout)
            assert not is_ours(beside[0]), "as packages make worlds of their own, whose ranks have other numbers"
        if not TORCH_2 or backend == "gloo":
            dist.monitored_barrier()
            DistributedDataParallel(torch.nn.Linear(2, 1))(torch.ones(1, 2)).sum().backward()
        if hasattr(dist, "split_group"):
            split = dist.split_group(None, [[0], [1]])
            assert is_ours(split) and dist.get_backend(split) == dist.get_backend()
            assert all(is_ours(dist.split_group(None, [[0], [1]], backend=one)) for one in ("gloo", "cpu:gloo"))
    if TORCH_2:
        try: world("cpu:gloo,cuda:nccl")
        except Exception: pass  # torch of the CPU has no NCCL: these groups are torch's
        else: raise AssertionError("who made the part of NCCL?")
    if os.environ["RANK"] == "0":
        mp.spawn(child, (2, sys.argv[1]), nprocs=2)
    print("all is well", flush=True)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("python", each_torch())
def test_scripts_that_name_gloo(python, tmp_path):
    """Groups are aiacc's and are called gloo; the user's own sitecustomize runs; nothing is loaded before torch is."""
    (tmp_path / "hers").mkdir()
    (tmp_path / "hers/sitecustomize.py").write_text("import os\nos.environ['SITE'] = \"the user's\"\n")
    (tmp_path / "script.py").write_text(GLOO)
    for one in (tmp_path, tmp_path / "hers"):
        one.chmod(0o755)
    env = {**BARE, "PYTHONPATH": str(tmp_path / "hers"), "AIACC_LOG": "info", "PYTHONWARNINGS": "ignore"}
    code, out, err = Job(["--quiet", "-np", 2, "--provide", "gloo", python, tmp_path / "script.py", tmp_path / "meets"], env=env).finish(timeout=PATIENCE_S)
    assert (code, out) == (0, "all is well\n" * 2), f"exit code {code}\n{out}\n{err}"
    assert err.count("aiacc: --provide gloo: groups of torch.distributed of the back end gloo are aiacc's\n") == 2, err  # rank 0, and a child's
    assert err.count("leaves a group of torch.distributed with the back ends cpu:gloo,cuda:nccl to torch") == (torch_version(python) >= "2"), err


def test_two_installations_that_provide_gloo_do_not_run_each_other_without_end(tmp_path):
    """As of aiaccrun within an aiaccrun of another installation. What Python would have run runs once."""
    folders = [tmp_path / name for name in ("one", "other", "hers")]
    for folder in folders[:2]:
        shutil.copytree(SOURCE / "bindings/python/aiacc/provide/gloo", folder)
    folders[2].mkdir()
    (folders[2] / "sitecustomize.py").write_text("print('hers')\n")
    done = subprocess.run([sys.executable, "-c", "print('a script')"], capture_output=True, text=True,
                          env={"PYTHONPATH": os.pathsep.join(map(str, folders)), "PYTHONDONTWRITEBYTECODE": "1"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "hers\na script\n", "")


ELASTIC = """
import os, signal, sys
import torch
import horovod.torch as hvd
hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(4, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
first, sizes = hvd.rank(), []

@hvd.elastic.run
def train(state):
    sizes.append(hvd.size())
    while state.step < 6:
        optimizer.zero_grad()
        model(torch.ones(2, 4) * (1 + hvd.rank())).sum().backward()
        if state.step == 3 and first == 0 and len(sizes) == 1: os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        state.step += 1
        if state.step % 2 == 0: state.commit()

state = hvd.elastic.TorchState(model, optimizer, step=0)
state.register_reset_callbacks([lambda: sizes.append(-hvd.rank())])
train(state)
weights = hvd.allgather(model.weight.detach())
assert weights.shape == (2, 4) and torch.equal(weights[0], weights[1])
print(first, hvd.rank(), hvd.local_rank(), hvd.local_size(), hvd.cross_size(), *sizes, flush=True)
"""


@pytest.mark.parametrize("python", each_torch())
def test_an_elastic_job_goes_on_without_a_lost_rank(python):
    code, out, err = provided(python, ELASTIC, "-np", 3, "--min-np", 2, "--provide", "horovod", env={**BARE, "AIACC_LOG": "error"})
    assert (code, sorted(out.splitlines())) == (0, ["1 0 0 2 1 3 0 2", "2 1 1 2 1 3 -1 2"]), (out, err)
    said = err.splitlines()
    assert sum("AR-RANK-LOST" in line for line in said) == 1 and sum("goes back to the last commit: " in line for line in said) == 2
    assert len(said) == 3, err


@pytest.mark.parametrize("python", each_torch()[:1])
def test_an_elastic_job_with_too_few_ranks_ends_with_the_lost_one(python):
    code, out, err = provided(python, ELASTIC, "-np", 3, "--provide", "horovod")
    assert code == 137 and out == "" and "rank 0 on host" in err.splitlines()[-1] and "killed by signal 9" in err, err


RUN = """
import horovod
def function(a, b):
    import horovod.torch as hvd
    hvd.init()
    return hvd.rank(), hvd.allreduce(__import__("torch").ones(1), op=hvd.Sum).item(), a + b
if __name__ == "__main__":
    assert horovod.run(function, (1,), {"b": 2}, np=2, use_mpi=False, use_gloo=False) == [(0, 2.0, 3), (1, 2.0, 3)]
    assert horovod.run(function, (1,), {"b": 2}, np=2, min_np=1, max_np=2, reset_limit=3) == [(0, 2.0, 3), (1, 2.0, 3)]
    print("all is well")
"""


@pytest.mark.parametrize("python", each_torch()[:1])
def test_horovod_run(python, tmp_path):
    (tmp_path / "script.py").write_text(RUN)
    path = f"{STAGE}/share/aiacc/python/aiacc/provide/horovod:{tmp_path}"
    done = subprocess.run([python, tmp_path / "script.py"], capture_output=True, text=True, timeout=100,
                          env={**os.environ, **BARE, "PYTHONPATH": path, "PATH": f"{STAGE}/bin:{os.environ['PATH']}"})
    assert (done.returncode, done.stdout) == (0, "all is well\n"), done.stderr


@pytest.mark.parametrize("python", each_torch()[:1])
def test_the_package_of_the_ranks_python_counts(python):
    """Not the installed one, which may be older."""
    code, out, _ = provided(python, "import horovod, aiacc; print(aiacc.__file__)", "--provide", "horovod", env=ENVIRONMENT)
    assert code == 0 and set(out.split()) == {str(pathlib.Path(ENVIRONMENT["PYTHONPATH"], "aiacc/__init__.py"))}
    code, out, _ = provided(python, "import horovod, aiacc; print(aiacc.__file__)", "--provide", "horovod")
    assert code == 0 and set(out.split()) == {str(STAGE / "share/aiacc/python/aiacc/__init__.py")}


def test_a_folder_of_its_name_is_not_the_package(tmp_path):
    """As a checkout has it: Python takes one in the folder of the script for a package without files."""
    (tmp_path / "aiacc/bindings").mkdir(parents=True)
    words = ["-np", "1", "--provide", "horovod", "/usr/bin/python3", "-c", "import horovod, aiacc; print(aiacc.__file__)"]
    done = subprocess.run([STAGE / "bin/aiaccrun", *words], cwd=tmp_path, env={**os.environ, **BARE, "PYTHONPATH": ""}, capture_output=True,
                          text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (0, f"{STAGE}/share/aiacc/python/aiacc/__init__.py\n"), done.stderr


def test_only_what_is_named_is_provided():
    code, _, err = provided("/usr/bin/python3", "import horovod", "--provide", "perseus")
    assert code == 1 and "ModuleNotFoundError: No module named 'horovod'" in err
    code, out, _ = provided("/usr/bin/python3", "import os; print(os.environ['PYTHONPATH'])", "--provide", "perseus,horovod", env={"PYTHONPATH": "/mine"})
    places = out.split()[0].split(":")
    assert [pathlib.Path(one).name for one in places] == ["perseus", "horovod", "mine"]


@pytest.mark.parametrize("python", each_torch()[:1])
def test_horovods_example_runs_with_its_own_import_line(python, tmp_path):
    text = (SOURCE / "examples/pytorch/digits_horovod.py").read_text()
    assert text.count("import aiacc.torch as hvd\n") == 1
    (tmp_path / "digits.py").write_text(text.replace("import aiacc.torch as hvd\n", "import horovod.torch as hvd\n"))
    shutil.copy2(SOURCE / "examples/pytorch/digits_data.py", tmp_path)
    tmp_path.chmod(0o755)
    code, out, err = Job(["--quiet", "-np", 2, "--provide", "horovod", python, tmp_path / "digits.py", "--epochs", 1, "--data",
                          SOURCE / "examples/digits/digits.txt"], env=BARE).finish(timeout=PATIENCE_S)
    assert code == 0 and re.search(r"epoch +1", out), (code, out, err)


def test_an_unknown_name_is_one_sentence():
    done = subprocess.run([STAGE / "bin/aiaccrun", "-np", "1", "--provide", "horovod,tensorflow", "true"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("aiaccrun: --provide takes gloo, horovod or perseus, not 'tensorflow'") and done.stderr.count("\n") == 1


def test_an_installation_without_the_packages_is_one_sentence(tmp_path):
    (tmp_path / "bin").mkdir()
    shutil.copy2(STAGE / "bin/aiaccrun", tmp_path / "bin/aiaccrun")
    done = subprocess.run([tmp_path / "bin/aiaccrun", "-np", "1", "--provide", "horovod", "true"], capture_output=True, text=True,
                          env={**os.environ, "LD_LIBRARY_PATH": str(STAGE / "lib")})
    assert done.returncode == 125 and done.stderr.count("\n") == 1 and "has no package horovod for --provide" in done.stderr
    assert done.stderr.endswith(" [AR-PROVIDE]\n") and str(tmp_path / "bin/aiaccrun") in done.stderr


@pytest.mark.skipif(bool(namespace_hosts.unavailable()), reason=str(namespace_hosts.unavailable()))
def test_on_every_host():
    with namespace_hosts.Hosts(2) as hosts:
        words = [f"{name}={value}" for name, value in BARE.items()]
        program = PERSEUS.replace("hvd.local_rank() < hvd.size()", "hvd.cross_size() == hvd.size()")
        code, out, err = on(hosts, "h0:1,h1:1", "--provide", "perseus", "env", *words, system_torch(), "-c", program).finish(timeout=200)
        assert (code, out) == (0, "all is well\n" * 2), err
        words.append("AIACC_LOG=error")
        code, out, err = on(hosts, "h0:2,h1:1", "--min-np", 2, "--provide", "horovod", "env", *words, system_torch(), "-c", ELASTIC).finish(timeout=200)
    assert (code, sorted(out.splitlines())) == (0, ["1 0 0 1 2 3 0 2", "2 1 0 1 2 3 -1 2"]), (out, err)
