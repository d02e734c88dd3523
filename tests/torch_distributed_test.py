"""The back end aiacc of torch.distributed: under aiaccrun, under torchrun, on one host and on several."""
import functools
import os
import re
import subprocess

import pytest

import namespace_hosts
from launcher_lab_test import on
from launcher_support import users, with_longer_limits
from python_support import ENVIRONMENT, PACKAGE_PROGRAMS, each_torch, each_torch_with, python_job
from torch_optimizer_test import system_torch

PROGRAM = PACKAGE_PROGRAMS / "torch_distributed.py"


def all_well(ranks, code, out, err):
    assert code == 0 and out.count("all is well") == ranks, f"exit code {code}\n{out}\n{err}"


@pytest.mark.parametrize("python, ranks", each_torch_with(1, 2, 3))
def test_under_aiaccrun(python, ranks):
    all_well(ranks, *python_job(python, ranks, "torch_distributed.py"))


@pytest.mark.parametrize("user", users())
def test_as_another_user(user):
    """With the system's torch, which every user may read."""
    all_well(2, *python_job(system_torch(), 2, "torch_distributed.py", "check_ddp", user=user))


@pytest.mark.parametrize("python", each_torch())
def test_under_torchs_own_launcher(python):
    """Without aiaccrun: ranks meet through the store that the launcher gives. (Debian's torchrun 1.13 fails by itself.)"""
    if "site-packages" not in subprocess.run([python, "-c", "import torch; print(torch.__file__)"], capture_output=True, text=True).stdout:
        pytest.skip("torchrun of Debian's python3-torch fails with Python 3.11, whatever it runs")
    done = subprocess.run([python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", PROGRAM], capture_output=True, text=True,
                          timeout=200, env={**os.environ, **ENVIRONMENT})
    all_well(2, done.returncode, done.stdout, done.stderr)


@functools.lru_cache(None)
def job_of_worlds(python):
    return python_job(python, 3, "torch_worlds.py")


@pytest.mark.parametrize("check", ["beside_a_default_group_of_gloo", "beside_gloo_after_a_smaller_world_of_aiacc", "smaller_worlds_through_one_store",
                                   "a_timeout_of_many_years", "operations_that_outlive_modules"])
@pytest.mark.parametrize("python", each_torch()[:1])
def test_worlds(python, check):
    """In one process, and a check that none came to as another one failed alone."""
    code, out, err = job_of_worlds(python)
    if f"{check} begins" not in out:
        code, out, err = python_job(python, 3, "torch_worlds.py", check)
    assert out.count(f"{check}: all is well") == 3, (code, out, err)
    if check == "operations_that_outlive_modules":
        assert code == 0 and "Exception" not in err, (code, out, err)


# What other versions of torch do in Python is done here before aiacc.torch is imported.
AS_IN_OTHER_VERSIONS = {
    "2.5 and older, where C++ alone knows names": """
def unknown(self):
    raise RuntimeError("ProcessGroup name not set")
dist.ProcessGroup._set_group_name, dist.ProcessGroup.group_name = lambda *_: None, property(unknown)
""",
    "2.14, which counts groups of members too": """
name_of_13 = getattr(c10d, "_process_group_name", None)  # torch 1.13 has none
def name_of_14(ranks, use_hashed_name):
    found = name_of_13(ranks, use_hashed_name)
    c10d._world.group_count += use_hashed_name and hashed_are_not_counted
    return found
hashed_are_not_counted = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14)
if name_of_13: c10d._process_group_name = name_of_14
""",
    "2.15, whose flight recorder wants a back end of C++": """
def attach(group, *_):
    group._get_backend(torch.device("cpu")).supports_abort_hooks_of_cpp
c10d._maybe_attach_flight_recorder = attach
"""}


@pytest.mark.parametrize("like", AS_IN_OTHER_VERSIONS)
@pytest.mark.parametrize("python", each_torch()[:1])
def test_groups_as_in_other_versions_of_torch(python, like):
    all_well(2, *python_job(python, 2, f"""
from datetime import timedelta
import torch, torch.distributed as dist
c10d = dist.distributed_c10d
{AS_IN_OTHER_VERSIONS[like]}
import aiacc.torch
dist.init_process_group("aiacc")
if hasattr(c10d, "_maybe_attach_flight_recorder"):  # torch calls it when it makes a group
    c10d._maybe_attach_flight_recorder(dist.group.WORLD, None, [0, 1])
part = dist.split_group(None, [[0]]) if hasattr(dist, "split_group") else None
group = dist.new_group([0, 1], timeout=timedelta(seconds=20))
tensor = torch.ones(1)
dist.all_reduce(tensor, group=group)
dist.destroy_process_group(group)
assert tensor.item() == 2
print("all is well")
"""))


# Each failure in a world of its own, as every operation of one fails after it.
ERRORS = """
import sys
from datetime import timedelta
import torch, torch.distributed as dist
import aiacc.torch
aiacc.torch.init()
rank = aiacc.rank()
dist.init_process_group("aiacc")
first_store = dist.distributed_c10d._get_default_store()
dist.destroy_process_group()
def mismatch():
    return torch.ones(3 + rank)
def first_rank_waits(call):
    try:
        call() if rank == 0 else store.wait(["over"], timedelta(seconds=60))
    finally:
        store.set("over", "yes")
def fails_in_backward():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    model(torch.ones(1, 1)).sum().backward() if rank == 0 else dist.all_reduce(torch.ones(5))
failures = {
    "shapes": lambda: dist.all_reduce(mismatch()),
    "future": lambda: dist.all_reduce(mismatch(), async_op=True).get_future().wait(),
    "late": lambda: first_rank_waits(dist.barrier),
    "monitored": lambda: first_rank_waits(lambda: dist.monitored_barrier(timeout=timedelta(seconds=1))),
    "backward": fails_in_backward}
for what in sys.argv[2:]:
    aiacc.torch.barrier()  # ranks of a slow machine come together only here
    store = dist.PrefixStore(what, first_store)
    dist.init_process_group("aiacc", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=int(sys.argv[1]) if what == "late" else 60))
    try:
        failures[what]()
    except Exception as error:
        kinds = [kind.__name__ for kind in (aiacc.Error, TimeoutError, getattr(dist, "DistBackendError", RuntimeError), RuntimeError)
                 if isinstance(error, kind)]
        print(f"{what}: rank {rank}: {' '.join(kinds)}: {error}", flush=True)
    dist.destroy_process_group()
"""

SHAPES = r"rank 0: allreduce of 3 fp32, sum; rank 1: allreduce of 4 fp32, sum"
KIND = r"Error DistBackendError RuntimeError|Error RuntimeError RuntimeError"  # the latter with torch 1.13
LATE = r"Error TimeoutError DistBackendError RuntimeError|Error TimeoutError RuntimeError RuntimeError"
FAILURES = {
    "shapes": [rf"rank 0: ({KIND}): .*{SHAPES}", rf"rank 1: ({KIND}): .*{SHAPES}"],
    "future": [rf"rank 0: ({KIND}): .*{SHAPES}", rf"rank 1: ({KIND}): .*{SHAPES}"],
    "late": [rf"rank 0: ({LATE}): .*was not complete after [\d.]+ s; rank 1 has not arrived"],
    "monitored": [rf"rank 0: ({LATE}): .*Rank 1 failed to pass monitoredBarrier: .* was not complete after [\d.]+ s; rank 1 has not arrived"],
    "backward": [rf"rank {rank}: .*RuntimeError: .*rank 0: allreduce of 2 fp32, sum; rank 1: allreduce of 5 fp32, sum" for rank in (0, 1)]}
OF_COMPILED_PART = ("shapes", "future", "late")


def said_of(what, out):
    return sorted(line.partition(": ")[2] for line in out.splitlines() if line.startswith(f"{what}: "))


def is_said(what, out):
    said = said_of(what, out)
    return len(said) == len(FAILURES[what]) and all(map(re.match, FAILURES[what], said))


@functools.lru_cache(None)
def failing_job(python, is_compiled=False):
    """(exit code, stdout, stderr) of one job with all failures."""
    names, env = (OF_COMPILED_PART, compiled_part(python)[0]) if is_compiled else (FAILURES, None)
    return with_longer_limits(lambda seconds: python_job(python, 2, ERRORS, seconds, *names, env=env), lambda ended: is_said("late", ended[1]), 3)


@pytest.mark.parametrize("what", FAILURES)
@pytest.mark.parametrize("python", each_torch())
def test_errors_that_users_of_torch_catch(python, what):
    code, out, err = failing_job(python)
    assert is_said(what, out) and code == 0, (code, out, err)


LATE_CLAUSES = ["rank 1 has not arrived", "rank 1 has not made this group", "ranks 1, 3 have freed it"]


@functools.lru_cache(None)
def worded(python):
    program = """
import sys, aiacc, aiacc.torch
from aiacc.torch._monitored import _worded
for clause in sys.argv[1:]:
    print(f"{clause}:", _worded(aiacc.Error(f"the timeout has passed: barrier was not complete after 1 s; {clause}"), 0, 1.0, False))
"""
    return subprocess.run([python, "-c", program, *LATE_CLAUSES], capture_output=True, text=True, timeout=60, env={**os.environ, **ENVIRONMENT})


@pytest.mark.parametrize("clause", LATE_CLAUSES)
@pytest.mark.parametrize("python", each_torch()[:1])
def test_a_monitored_barrier_names_the_rank_wherever_it_is(python, clause):
    done = worded(python)
    assert f"{clause}: Rank 1 failed to pass monitoredBarrier: the timeout" in done.stdout, (done.stdout, done.stderr)


@functools.lru_cache(None)
def compiled_part(python):
    """(the environment of ranks that find it, its file). Compiled once; skips where it cannot be compiled."""
    cache = {"XDG_CACHE_HOME": os.path.join(os.environ["AIACC_BUILD"], "cache")}
    done = subprocess.run([python, "-m", "aiacc.torch.build"], capture_output=True, text=True, timeout=250, env={**os.environ, **ENVIRONMENT, **cache})
    if "The back end works without" in done.stderr and "failed" not in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0 and f"{cache['XDG_CACHE_HOME']}/aiacc/torch-shim-" in done.stdout, (done.stdout, done.stderr)
    return {"AIACC_TORCH_SHIM": "1", **cache}, done.stdout.partition(": for torch")[0]


@pytest.mark.parametrize("python", each_torch()[:1])
def test_with_the_compiled_part(python):
    all_well(2, *python_job(python, 2, "torch_distributed.py", env=compiled_part(python)[0]))


SHORT_WAYS = """
import sys
import torch, torch.distributed as dist
import aiacc, aiacc.torch
dist.init_process_group("aiacc")
rank, size = dist.get_rank(), dist.get_world_size()
one, all_of = torch.ones(2), torch.zeros(2 * size)
def is_short(work):
    work.wait()
    return "aiacc" not in type(work).__module__
print([is_short(work) for work in (
    dist.all_reduce(one, async_op=True), dist.broadcast(one, 1, async_op=True), dist.all_gather_into_tensor(all_of, one, async_op=True),
    dist.reduce_scatter_tensor(one, all_of, async_op=True), dist.all_to_all_single(all_of, all_of.clone(), async_op=True),
    dist.barrier(async_op=True), dist.isend(one, 1) if rank == 0 else dist.irecv(one, 0))])
# What is not dense, or of another type, goes the long way, and both belong together.
square = torch.full((2, 2), float(rank))
work = dist.all_reduce(square.t() if rank else square, async_op=True)
print(is_short(work) == (rank == 0 or square.t().is_contiguous()), square.tolist() == [[1.0, 1.0], [1.0, 1.0]])
print(not is_short(dist.all_reduce(torch.ones(2, dtype=torch.bool), async_op=True)))
print([is_short(dist.all_reduce(torch.ones(count), async_op=True)) for count in (1 << 19, 1 << 20)] == [True, False])
# Futures, of which many are pending at a time, and works that nobody waits for.
given = [torch.ones(3) for _ in range(20)]
futures = [dist.all_reduce(tensor, async_op=True).get_future().then(lambda ended: ended.value()[0].sum().item()) for tensor in given]
print([future.wait() for future in futures] == [6.0] * 20)
for _ in range(100):
    dist.all_reduce(torch.ones(1000), async_op=True)
dist.barrier()
try:
    dist.broadcast(one, src=size)
except (RuntimeError, ValueError) as error:
    print("invalid root rank" in str(error) or "rank" in str(error))
"""


@pytest.mark.parametrize("python", each_torch()[:1])
def test_which_calls_the_compiled_part_takes(python):
    _, file = compiled_part(python)
    code, out, err = python_job(python, 2, SHORT_WAYS, env={"AIACC_TORCH_SHIM": file})
    assert code == 0 and sorted(out.splitlines()) == sorted(2 * [str([True] * 7), "True True", "True", "True", "True", "True"]), (code, out, err)


@pytest.mark.parametrize("python", each_torch()[:1])
def test_threads_of_the_compiled_part_end_before_python(python):
    """One that takes the interpreter's lock while Python ends would abort the process."""
    code, out, err = python_job(python, 2, """
import time
import torch, torch.distributed as dist
import aiacc.torch
dist.init_process_group("aiacc")
def last(ended):
    time.sleep(0.5)
    print("all is well")
time.sleep(0.3 * dist.get_rank())  # rank 0 has a future of what has not ended
work = dist.all_reduce(torch.ones(2), async_op=True)
if dist.get_rank() == 0:
    work.get_future().add_done_callback(last)
work.wait()
""", env={"AIACC_TORCH_SHIM": compiled_part(python)[1]})
    all_well(1, code, out, err)


@pytest.mark.parametrize("what", OF_COMPILED_PART)
@pytest.mark.parametrize("python", each_torch()[:1])
def test_errors_with_the_compiled_part(python, what):
    code, out, err = failing_job(python, is_compiled=True)
    assert is_said(what, out) and code == 0, (code, out, err)


COUNTED = """
import warnings
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed._functional_collectives import all_reduce, wait_tensor
import aiacc.torch
warnings.simplefilter("ignore")
dist.init_process_group("aiacc")
rank, gloo = dist.get_rank(), dist.new_group(backend="gloo")

def calls(group):
    one, two = torch.ones(4), torch.zeros(8)
    parts = list(two.chunk(2))
    dist.all_reduce(one, group=group)
    dist.all_reduce(one, group=group, async_op=True).wait()
    dist.all_reduce(one.int(), dist.ReduceOp.BOR, group)
    dist.broadcast(one, 0, group)
    dist.reduce(one, 0, group=group)
    dist.all_gather(parts, one, group)
    dist.all_gather_into_tensor(two, one, group)
    dist.all_gather_object([None, None], "x", group)
    dist.gather(one, parts if rank == 0 else None, 0, group)
    dist.scatter(one, parts if rank == 0 else None, 0, group)
    dist.reduce_scatter_tensor(one, two, group=group)
    dist.all_to_all_single(two, two.clone(), group=group)
    dist.barrier(group)
    wait_tensor(all_reduce(one, "sum", group))
    dist.send(one, 1, group) if rank == 0 else dist.recv(one, 0, group)

def ddp(group):
    torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3), process_group=group)(torch.ones(1, 3)).sum().backward()

def fsdp(group):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    mesh = dist.DeviceMesh.from_group(group, "cpu")
    for each in (*net, net):
        fully_shard(each, mesh=mesh)
    net(torch.ones(2, 4)).sum().backward()

def counts(function, group):
    with CommDebugMode() as mode:
        function(group)
    mode.generate_comm_debug_tracing_table(noise_level=3)
    return {str(name): count for name, count in mode.get_comm_counts().items()}

for function in (calls, ddp, fsdp):
    mine, others = counts(function, dist.group.WORLD), counts(function, gloo)
    assert mine == others and len(mine) > 1, (function, mine, others)
print("all is well")
"""


@pytest.mark.parametrize("is_compiled", [False, True], ids=["python", "compiled"])
@pytest.mark.parametrize("python", each_torch()[:1])
def test_comm_debug_mode_counts_as_with_gloo(python, is_compiled):
    all_well(2, *python_job(python, 2, COUNTED, env=compiled_part(python)[0] if is_compiled else None))


@pytest.mark.parametrize("python", each_torch()[:1])
def test_a_compiled_part_of_another_torch_is_refused(python, tmp_path):
    """Without loading it."""
    other = tmp_path / "other.so"
    other.write_bytes(b"\x7fELF aiacc-torch-shim for torch 0.4.1, C++ ABI 0\0")
    program = "import torch.distributed as dist, aiacc.torch\ndist.init_process_group('aiacc', rank=0, world_size=1, store=dist.HashStore())\ndist.barrier()"
    for file, reason in ((other, "it is for torch 0.4.1, C++ ABI 0, and this is torch "), (tmp_path / "none.so", "No such file")):
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=100,
                              env={**os.environ, **ENVIRONMENT, "PYTHONWARNINGS": "default", "AIACC_TORCH_SHIM": str(file)})
        assert done.returncode == 0 and f"the compiled part of aiacc.torch in {file} is not used: " in done.stderr and reason in done.stderr, done.stderr


@pytest.mark.parametrize("python", each_torch()[:1])
def test_the_compiled_part_for_a_torch_of_another_compiler(python):
    """torch up to 2.8 says by which compiler it is, or modules with another's pybind11 would not know its types."""
    compiled_part(python)
    program = """
import types
import torch, torch.distributed
torch._C._PYBIND11_BUILD_ABI = "_cxxabi7"
from aiacc.torch import _shim, build
assert '-DPYBIND11_BUILD_ABI="_cxxabi7"' in build._command("shim.so")
_shim.check_types(_shim.module())
text = "allreduce(arg0: int, arg1: int, arg2: list[torch.Tensor], arg3: c10d::AllreduceOptions) -> c10d::Work"
try:
    _shim.check_types(types.SimpleNamespace(allreduce=types.SimpleNamespace(__doc__=text)))
except ImportError as error:
    print(error)
"""
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=100,
                          env={**os.environ, **ENVIRONMENT, **compiled_part(python)[0]})
    assert "do not know each other's types" in done.stdout, (done.stdout, done.stderr)


@pytest.mark.skipif(bool(namespace_hosts.unavailable()), reason=str(namespace_hosts.unavailable()))
@pytest.mark.parametrize("python", each_torch()[:1])
def test_over_hosts(python):
    with namespace_hosts.Hosts(2) as hosts:
        words = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        all_well(4, *on(hosts, "h0:2,h1:2", "env", *words, python, PROGRAM).finish(timeout=200))
