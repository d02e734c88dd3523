"""Wrong types for each argument of aiacc.torch: one sentence names the argument, and nothing has begun."""
import inspect
import sys
import warnings

import torch

import aiacc.torch as hvd
from torch_checks import run
from wrong_arguments import ODD, refused, refuses_each

ANYTHING = {"obj", "average", "sparse_as_dense", "shuffle", "fp16", "averaged", "ext_env_var", "pkg_path", "ext_base_name", "verbose", "mark_cycles",
            "model", "momentum_masking", "affine", "track_running_stats", "eps", "momentum"}  # objects, and what is taken as true or false or by torch


def model():
    return torch.nn.Linear(2, 2)


GIVEN = {"tensor": lambda: torch.ones(4, 2), "tensors": lambda: [torch.ones(4, 2)], "root_rank": lambda: 0, "params": lambda: model().state_dict(),
         "optimizer": lambda: torch.optim.SGD(model().parameters(), lr=0.1), "obj": lambda: 1, "ranks_or_comm": lambda: [0], "process_set": lambda: [0],
         "num_features": lambda: 3, "op": lambda: hvd.Sum, "name": lambda: None, "dataset": lambda: [1, 2], "num_classes": lambda: 4, "in_features": lambda: 3,
         "embedding_size": lambda: 3, "margin_loss": lambda: print, "file_path": lambda: "t", "ext_name": lambda: "horovod.torch",
         "ext_base_name": lambda: "torch", "num_rank": lambda: 2, "warm_up_learning_rate": lambda: 0.1, "warm_up_step": lambda: 1,
         "init_learning_rate": lambda: 0.1, "global_step": lambda: 2, "decay_steps": lambda: 3, "decay_rate": lambda: 0.5, "period": lambda: 4}
OWN = {"Compression", "init", "poll", "synchronize", "shutdown", "join", "ProcessSet", "SyncBatchNorm", "sparse_allreduce_async", "add_process_set"}


def check_each_argument_of_each_function():
    for name in hvd.__all__:
        function = getattr(hvd, name)
        if name in OWN or not callable(function) or isinstance(function, type) and issubclass(function, Exception):
            continue
        refuses_each(function, GIVEN, ANYTHING & set(inspect.signature(function).parameters))
    whole = hvd.allreduce(torch.ones(1), op=hvd.Sum)
    assert whole.item() == hvd.size()  # nothing of it was left behind


def check_numbers_of_numpy_and_of_divisions_are_taken():
    import numpy
    root = numpy.int64(hvd.size() - 1)
    assert hvd.broadcast(torch.tensor([float(hvd.rank())]), root_rank=root, name="numpy").item() == root
    assert hvd.broadcast_object(hvd.rank(), root_rank=root) == root
    hvd.broadcast_parameters(model().state_dict(), root_rank=root)
    assert hvd.allreduce(torch.ones(1), average=numpy.bool_(False)).item() == hvd.size()
    assert len(hvd.alltoall(torch.ones(hvd.size()), splits=[1.0] * hvd.size())[0]) == hvd.size()
    one = model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(one.parameters(), lr=0.1), one.named_parameters(), backward_passes_per_step=4 / 2,
                                         gradient_predivide_factor=numpy.float32(2))
    optimizer.set_backward_passes_per_step(2 / 2)
    one(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def check_those_that_differ():
    sparse = torch.eye(2).to_sparse()
    for name in ("name", "op", "process_set"):
        refused(hvd.sparse_allreduce_async, name, ODD, {"tensor": sparse, "name": "x", "op": hvd.Sum})
    refused(hvd.SyncBatchNorm, "process_set", [0, 1], {"num_features": 2})
    refused(hvd.poll, "handle", [], {})
    refused(hvd.synchronize, "handle", [], {})


def check_the_sentences():
    tensor = {"tensor": torch.ones(2)}
    assert refused(hvd.allreduce, "process_set", [0, 1], tensor) == \
        "process_set is of list: it is a ProcessSet, as add_process_set returns it for a list of ranks"
    assert refused(hvd.allreduce, "compression", "fp16", tensor) == \
        "compression is 'fp16': it is Compression.none, Compression.fp16, Compression.bf16, with SGD in a DistributedOptimizer a DGC, or has compress and decompress as these do"
    optimizer = {"optimizer": GIVEN["optimizer"]()}
    assert refused(hvd.DistributedOptimizer, "compression", "fp16", optimizer).startswith("compression is 'fp16'")
    assert refused(hvd.DistributedOptimizer, "process_set", [0, 1], optimizer).startswith("process_set is of list")
    assert "above 0" in refused(hvd.DistributedOptimizer, "gradient_predivide_factor", 0, optimizer)
    assert "average is 'yes'" in refused(hvd.allreduce, "average", "yes", tensor)
    assert refused(hvd.allreduce, "prescale_factor", "2", tensor) == "prescale_factor is '2': it is a number"
    assert refused(hvd.remove_process_set, "process_set", [0], {}).startswith("process_set is of list")


def check_a_compression_that_is_an_object():
    class Halves:
        def compress(self, tensor):
            return tensor.half(), tensor.dtype

        def decompress(self, tensor, kind):
            return tensor.to(kind)
    layer = torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.1), compression=Halves())
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert layer.weight.grad.tolist() == [[1.0, 1.0]]


warnings.simplefilter("ignore")
run(globals(), sys.argv[1:])
