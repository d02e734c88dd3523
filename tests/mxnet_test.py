"""aiacc.mxnet, run by ranks on one host."""
import re

import pytest

from launcher_support import Job
from python_support import ENVIRONMENT, MXNET_ENVIRONMENT, PATIENCE_S, SOURCE, check_job, check_jobs, mxnet_python, python_job


@pytest.mark.parametrize("ranks", [1, 3])
def test_collectives_and_layers(ranks):
    check_jobs(mxnet_python(), ranks, ["mxnet_collectives.py", "mxnet_layers.py"], env=MXNET_ENVIRONMENT)


def test_training_and_arguments_of_the_wrong_type():
    check_jobs(mxnet_python(), 2, ["mxnet_training.py", "mxnet_arguments.py"], env=MXNET_ENVIRONMENT)


def test_a_gradient_that_is_not_finite():
    check_job(mxnet_python(), 2, "mxnet_training.py", "check_a_gradient_that_is_not_finite_leaves_out_the_step_on_all_ranks",
              env={**MXNET_ENVIRONMENT, "AIACC_NAN_CHECK": "yes"})


def test_the_engine_that_runs_everything_at_once():
    code, out, _ = python_job(mxnet_python(), 2, "mxnet_collectives.py", "check_in_place_and_groups", "check_allreduce_of_every_type_and_op",
                              env={**MXNET_ENVIRONMENT, "MXNET_ENGINE_TYPE": "NaiveEngine"})
    assert (code, out) == (0, "all is well\n" * 2)


@pytest.mark.parametrize("number, said", enumerate((r"loss [\d.]+ on 2 ranks\n", r"rows \[  3 999\] of 2 ranks\n")), ids=["trainer", "store"])
def test_the_scripts_of_the_guide(number, said):
    snippets = re.findall(r"^```python\n(.*?)^```", (SOURCE / "docs/mxnet.md").read_text(), re.S | re.M)
    assert len(snippets) == 2
    code, out, err = python_job(mxnet_python(), 2, snippets[number], env=MXNET_ENVIRONMENT)
    assert (code, err) == (0, "") and re.fullmatch(said, out), out + err


LOST = """
import aiacc.mxnet as hvd, mxnet as mx
hvd.init()
store = hvd.create()
store.init("w", mx.nd.ones((4,)))
if hvd.rank() == 1:
    raise KeyError("a mistake")
store.push("w", mx.nd.ones((4,)))
store.pull("w", out=(pulled := mx.nd.zeros((4,))))
pending, named = hvd.allreduce(mx.nd.ones((4,))), hvd.allreduce(mx.nd.ones((4,)), name="named")
for one in (pending, named, pulled):
    try:
        one.asnumpy()
    except mx.base.MXNetError as error:
        print("rank 1" in str(error), flush=True)
"""


def test_a_lost_rank_is_an_error_of_the_array():
    code, out, err = python_job(mxnet_python(), 2, LOST, env=MXNET_ENVIRONMENT)
    assert code == 1 and set(out.split()) <= {"True"} and "a mistake" in err and "rank 1 on host" in err, (code, out, err)


HOROVOD = """
import horovod.mxnet as hvd
from horovod.mxnet.mpi_ops import allreduce
from horovod.common.util import check_extension, extension_available
import mxnet as mx
hvd.init()
check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", "", "mpi_lib")
assert extension_available("mxnet") and allreduce(mx.nd.ones((2,)), op=hvd.Sum).asnumpy().tolist() == [hvd.size()] * 2
print("all is well", flush=True)
"""

PERSEUS = """
import perseus.mxnet as perseus
import mxnet as mx
perseus.init()
assert perseus.create("dist-async-perseus").type == mx.kv.create("dist_async_perseus").type == "dist_async_aiacc"
norm = mx.gluon.contrib.nn.PerseusSyncBatchNorm(num_devices=1)
norm.initialize()
with mx.autograd.record():
    result = norm(mx.nd.ones((2, 3)) * perseus.rank())
assert abs(abs(result.asnumpy()).sum() - 6) < 1e-3
assert mx.sym.contrib.PerseusSyncBatchNorm(mx.sym.Variable("data"), name="bn", ndev=1).list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
print("all is well", flush=True)
"""


@pytest.mark.parametrize("package, program", [("horovod", HOROVOD), ("perseus", PERSEUS)], ids=["horovod", "perseus"])
def test_scripts_of_other_packages_run_as_they_are(package, program):
    bare = {name: value for name, value in ENVIRONMENT.items() if name not in ("AIACC_LIBRARY", "PYTHONPATH")}
    code, out, err = Job(["--quiet", "-np", 2, "--provide", package, mxnet_python(), "-c", program],
                         env={**bare, **MXNET_ENVIRONMENT}).finish(timeout=PATIENCE_S)
    assert (code, out, err) == (0, "all is well\n" * 2, ""), f"exit code {code}\n{out}\n{err}"
