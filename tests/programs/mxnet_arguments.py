"""Wrong types for each argument of aiacc.mxnet: one sentence names the argument, and nothing has begun."""
import inspect
import sys
import warnings

import mxnet as mx

import aiacc.mxnet as hvd
from mxnet_checks import run
from wrong_arguments import refused, refuses_each

ANYTHING = {"obj", "average", "averaged", "only_used", "weight_initializer", "dtype", "optimizer_params", "prefix", "ext_env_var", "pkg_path", "ext_base_name",
            "verbose", "mark_cycles"}  # objects, what is taken as true or false, and what MXNet checks
GIVEN = {"tensor": lambda: mx.nd.ones((4, 2)), "tensors": lambda: [mx.nd.ones((4, 2))], "root_rank": lambda: 0, "params": dict, "obj": lambda: 1,
         "optimizer": lambda: mx.optimizer.create("sgd"), "in_units": lambda: 3, "num_classes": lambda: 4, "num_rank": lambda: 2, "file_path": lambda: "t",
         "ext_name": lambda: "horovod.mxnet", "ext_base_name": lambda: "mxnet", "process_set": lambda: hvd.global_process_set}
OWN = {"Compression", "DistributedTrainer", "KVStore", "PerseusOp", "PerseusSyncBatchNorm", "ProcessSet", "SyncBatchNorm", "add_process_set", "create", "init",
       "shutdown", "sync_batch_norm_symbol"}

AT_ONCE = {"allgather", "grouped_allgather", "alltoall", "grouped_allreduce_"}  # return when they are done, and have no use for a priority


def check_each_argument_of_each_function():
    for name in hvd.__all__:
        function = getattr(hvd, name)
        if name in OWN or not callable(function) or isinstance(function, type) and issubclass(function, Exception):
            continue
        unused = {"priority"} if name in AT_ONCE else set()
        refuses_each(function, GIVEN, (ANYTHING | unused) & set(inspect.signature(function).parameters))
    assert hvd.allreduce(mx.nd.ones(1), op=hvd.Sum).asscalar() == hvd.size()  # nothing was left behind


def check_layers_and_trainers():
    refused(hvd.SyncBatchNorm, "process_set", [0, 1], {})
    refused(hvd.sync_batch_norm_symbol, "process_set", [0, 1], {})
    trainer = {"params": mx.gluon.nn.Dense(1, in_units=1).collect_params(), "optimizer": "sgd"}
    for name, value in (("process_set", [0, 1]), ("compression", "fp16"), ("gradient_predivide_factor", "2"), ("num_groups", "2")):
        assert refused(hvd.DistributedTrainer, name, value, trainer).startswith(f"{name} is "), name
    refused(hvd.DistributedOptimizer, "gradient_predivide_factor", 0, {"optimizer": GIVEN["optimizer"]()})
    refused(hvd.remove_process_set, "process_set", [0], {})


warnings.simplefilter("ignore")
run(globals(), sys.argv[1:])
