"""Wrong types for each argument of aiacc.tensorflow: one sentence names the argument, and nothing has begun."""
import inspect
import sys

import tensorflow as tf

import aiacc.tensorflow as hvd
import aiacc.tensorflow.keras as hvk
from tensorflow_checks import run
from wrong_arguments import refuses_each

# Objects, what is taken as true or false, devices, which mean nothing, and what TensorFlow checks.
ANYTHING = {"obj", "average", "device_dense", "device_sparse", "session", "ignore_name_scope", "inplace", "sparse_as_dense", "average_aggregated_gradients",
            "scale_local_gradients", "use_locking", "pkg_path", "ext_env_var", "ext_base_name", "verbose", "mark_cycles", "value", "filepath", "custom_optimizers",
            "custom_objects", "legacy_opts"}
GIVEN = {"tensor": lambda: tf.ones([4, 2]), "tensors": lambda: [tf.ones([4, 2])], "variables": lambda: [tf.Variable(1.0)], "root_rank": lambda: 0,
         "obj": lambda: 1, "optimizer": lambda: tf.keras.optimizers.SGD(), "gradtape": tf.GradientTape, "num_rank": lambda: 2, "file_path": lambda: "t",
         "ext_name": lambda: "horovod.tensorflow", "ext_base_name": lambda: "tensorflow", "value": lambda: [1.0], "op": lambda: None, "average": lambda: None,
         "process_set": lambda: hvd.global_process_set}
OWN = {"BroadcastGlobalVariablesHook", "Compression", "ProcessSet", "SyncBatchNormalization", "add_process_set", "broadcast_global_variables", "init",
       "load_model", "shutdown"}


def check_each_argument_of_each_function():
    for module in (hvd, hvk):
        for name in module.__all__:
            function = getattr(module, name)
            if name in OWN or not callable(function) or isinstance(function, type) and issubclass(function, Exception):
                continue
            refuses_each(function, GIVEN, ANYTHING & set(inspect.signature(function).parameters))
    assert float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum)) == hvd.size()  # nothing was left behind


if __name__ == "__main__":
    run(dict(globals()), sys.argv[1:])
