"""aiacc.tensorflow, run by ranks on one host and on two."""
import re

import pytest

import namespace_hosts
from launcher_support import Job
from python_support import ENVIRONMENT, PATIENCE_S, SOURCE, TENSORFLOW_ENVIRONMENT, check_job, check_jobs, python_job, tensorflow_python, without_tensorflows_words


PROGRAMS = ["tensorflow_collectives.py", "tensorflow_training.py", "tensorflow_keras.py"]


# They take long: on one rank and on three, of Keras's checks only that of batch normalisation.
SOME = [*PROGRAMS[:2], f"{PROGRAMS[2]}:check_batch_normalisation"]


@pytest.mark.parametrize("ranks, programs", [(1, SOME), (2, [*PROGRAMS, "tensorflow_arguments.py"]), (3, SOME)], ids=["1", "2", "3"])
def test_collectives_gradients_and_training(ranks, programs):
    check_jobs(tensorflow_python(), ranks, programs, env=TENSORFLOW_ENVIRONMENT)


def test_programs_of_tensorflow_1():
    check_job(tensorflow_python(), 2, "tensorflow_v1.py", env=TENSORFLOW_ENVIRONMENT)


def test_a_gradient_that_is_not_finite():
    check_job(tensorflow_python(), 2, "tensorflow_training.py", "check_a_step_without_a_finite_gradient", env={**TENSORFLOW_ENVIRONMENT, "AIACC_NAN_CHECK": "yes"})


def test_the_scripts_of_the_guide():
    snippets = re.findall(r"^```python\n(.*?)^```", (SOURCE / "docs/tensorflow.md").read_text(), re.S | re.M)
    assert len(snippets) == 2
    for snippet in snippets:
        code, out, err = python_job(tensorflow_python(), 2, snippet, env=TENSORFLOW_ENVIRONMENT)
        assert (code, without_tensorflows_words(err)) == (0, []) and re.fullmatch(r"loss [\d.]+ on 2 ranks\n", out), out + err


def losses(folder, ranks, loop, options=()):
    result = folder / f"{loop}.{ranks}.{len(options)}"
    command = ["--quiet", *options, "-np", ranks, tensorflow_python(), SOURCE / "examples/tensorflow/digits.py", "--data", SOURCE / "examples/digits/digits.txt",
               "--epochs", 2, "--loop", loop, "--result", result]
    code, out, err = Job(command, env={**ENVIRONMENT, **TENSORFLOW_ENVIRONMENT}).finish(timeout=200)
    assert code == 0 and out.count("epoch") == 2, f"exit code {code}\n{out}\n{err}"
    return [[float(number) for number in line.split()] for line in result.read_text().splitlines()]


def check_alike(alone, together):
    for (loss, accuracy), (other, others_accuracy) in zip(alone, together, strict=True):
        assert abs(loss - other) < 1e-4 and abs(accuracy - others_accuracy) < 0.01, (alone, together)
    assert together[1][0] < together[0][0] and together[1][1] > 0.8, together


def test_the_example_learns_what_one_rank_does(tmp_path):
    alone = losses(tmp_path, 1, "keras")
    check_alike(alone, losses(tmp_path, 2, "keras"))
    check_alike(alone, losses(tmp_path, 4, "tape"))


def test_the_example_learns_the_same_on_two_hosts(tmp_path):
    reason = namespace_hosts.unavailable()
    if reason is not None:
        pytest.skip(str(reason))
    alone = losses(tmp_path, 1, "tape")
    with namespace_hosts.Hosts(2) as hosts:
        check_alike(alone, losses(tmp_path, 4, "tape", ["--launch-agent", hosts.enter, "-H", "h0:2,h1:2"]))


LOST = """
import os, signal
import aiacc.tensorflow as hvd, tensorflow as tf
hvd.init()
one = tf.Variable([1.0, 2.0])
@tf.function
def step():
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(one)
    return tape.gradient(loss, one), hvd.allreduce(one)
step()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
for call in (step, lambda: hvd.allreduce(one)):
    try:
        call()
    except tf.errors.UnknownError as error:
        print("rank 1" in str(error), flush=True)
"""


def test_a_lost_rank_is_an_error_of_tensorflows():
    code, out, err = python_job(tensorflow_python(), 2, LOST, options=["--min-np", 1], env={**TENSORFLOW_ENVIRONMENT, "AIACC_LOG": "error"})
    assert (code, out) == (0, "True\n" * 2) and "rank 1 on host" in err, (code, out, err)


def test_a_lost_rank_is_replaced(tmp_path):
    def run(folder, *deaths):
        folder.mkdir()
        code, out, err = Job(["--quiet", "-np", 3, "--min-np", 2, "--max-np", 3, tensorflow_python(), SOURCE / "tests/programs/tensorflow_elastic.py", folder,
                              *deaths], env={**ENVIRONMENT, **TENSORFLOW_ENVIRONMENT, "AIACC_LOG": "error"}).finish(timeout=200)
        assert code == 0, out + err
        return sorted(out.splitlines()), without_tensorflows_words(err)
    undisturbed, said = run(tmp_path / "none")
    result = undisturbed[0].split()[-1]
    assert (undisturbed, said) == ([f"{rank} {rank} 8 3 {result}" for rank in range(3)], [])
    found, said = run(tmp_path / "one", "3:0")
    assert found == [f"0 2 8 3 {result}", f"1 0 8 3 3 3 {result}", f"2 1 8 3 3 3 {result}"], (found, undisturbed, said)
    assert [("a new rank is started in its place" in line, "goes back to the last commit: reducing gradients: rank" in line) for line in sorted(said)] == \
        [(True, False), (False, True), (False, True)], said


HOROVOD = """
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvk
import horovod.keras
from horovod.tensorflow.mpi_ops import allgather
from horovod.tensorflow.keras.callbacks import BroadcastGlobalVariablesCallback
from horovod.common.util import check_extension, extension_available
import tensorflow as tf
hvd.init()
check_extension("horovod.tensorflow", "HOROVOD_WITH_TENSORFLOW", "", "mpi_lib")
assert extension_available("tensorflow") and horovod.keras.callbacks.BroadcastGlobalVariablesCallback is BroadcastGlobalVariablesCallback
assert hvd.allreduce(tf.ones(2), op=hvd.Sum).numpy().tolist() == [hvk.size()] * 2 and allgather(tf.ones([1])).shape == [hvd.size()]
print("all is well", flush=True)
"""

PERSEUS = """
import perseus.tensorflow.horovod as hvd
import perseus.tensorflow.horovod.keras as hvk
import tensorflow as tf
hvd.init()
hvk.callbacks.MetricAverageCallback()
assert float(hvd.allreduce(tf.constant(1.0 + hvd.rank()), average=True)) == (hvd.size() + 1) / 2
print("all is well", flush=True)
"""


@pytest.mark.parametrize("package, program", [("horovod", HOROVOD), ("perseus", PERSEUS)], ids=["horovod", "perseus"])
def test_scripts_of_other_packages_run_as_they_are(package, program):
    bare = {name: value for name, value in ENVIRONMENT.items() if name not in ("AIACC_LIBRARY", "PYTHONPATH")}
    code, out, err = Job(["--quiet", "-np", 2, "--provide", package, tensorflow_python(), "-c", program],
                         env={**bare, **TENSORFLOW_ENVIRONMENT}).finish(timeout=PATIENCE_S)
    assert (code, out, without_tensorflows_words(err)) == (0, "all is well\n" * 2, []), f"exit code {code}\n{out}\n{err}"
