"""aiacc_caffe.hpp and aiacc.caffe with the real Caffe, which `make check-caffe' builds: LeNet learns the same on any number of ranks."""
import contextlib
import os
import re
import shlex
import signal
import subprocess

import pytest

from abi_process_test import sanitizer
from launcher_support import STAGE, Job
from python_support import ENVIRONMENT, SOURCE

CAFFE = os.path.join(os.environ["AIACC_BUILD"], "caffe")
if not os.path.exists(f"{CAFFE}/made-of"):
    pytest.skip("no Caffe in the build directory: `make check-caffe' builds it and runs these tests", allow_module_level=True)

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
GUIDE = (SOURCE / "docs/caffe.md").read_text()
IMAGES = SOURCE / "examples/digits/digits.txt"
LAYER = """
layer {{ name: "{0}" type: "InnerProduct" bottom: "{1}" top: "{0}" {2}
  inner_product_param {{ num_output: {3} weight_filler {{ type: "xavier" }} }} }}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder where the guide's commands were run, the last of which starts the example."""
    made = tmp_path_factory.mktemp("caffe")
    (made / "examples").symlink_to(SOURCE / "examples")
    return made


@pytest.fixture(scope="module")
def example(folder):
    build, start = re.findall(r"^    (.*)$", GUIDE, re.M)
    flags = " ".join([f"-I{STAGE}/include", f"-L{STAGE}/lib", f"-Wl,-rpath,{STAGE}/lib", "-laiacc", *sanitizer()])
    subprocess.run(build.replace("$(pkg-config --cflags --libs aiacc)", flags), shell=True, cwd=folder, env={**os.environ, "CAFFE": CAFFE}, check=True)
    launcher, *words = shlex.split(start)
    assert launcher == "aiaccrun"
    return lambda *changes: changed(words, *changes)


def changed(words, *changes):
    """Words of a command, some of them replaced."""
    for old, new in changes:
        at = words.index(old)
        words = [*words[:at], *map(str, new), *words[at + 1:]]
    return words


def write_model(folder, name, net=(), solver=()):
    """A solver file in `folder` that differs from the example's, and takes a third of its steps."""
    for kind, base, changes in (("net", "lenet", net), ("solver", "solver", (*SHORT, *solver, ("examples/caffe/lenet.prototxt", f"{folder}/{name}.net")))):
        text = (SOURCE / f"examples/caffe/{base}.prototxt").read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (folder / f"{name}.{kind}").write_text(text)
    return f"{folder}/{name}.solver"


SHORT = ("max_iter: 132", "max_iter: 44"), ("test_interval: 66", "test_interval: 22")


def learn(folder, words, **env):
    """Loss and accuracy."""
    code, out, err = Job(["--quiet", *words], env={**ONE_THREAD, **env}, cwd=folder).finish(timeout=200)
    found = re.fullmatch(r"final: loss ([\d.]+), test accuracy ([\d.]+) %\n", out)
    assert code == 0 and found and err == "", f"exit code {code}\n{out}\n{err}"
    return [float(number) for number in found.groups()]


def with_solver(path):
    return "examples/caffe/solver.prototxt", [path]


def same(one, other):
    return abs(one[0] - other[0]) < 1e-4 and abs(one[1] - other[1]) < 0.3


def test_the_guides_commands(folder, example):
    loss, accuracy = learn(folder, example())
    assert loss < 0.3 and accuracy > 93
    assert same(learn(folder, example(("4", "1"))), (loss, accuracy))


@pytest.fixture(scope="module")
def alone(folder, example):
    """What one rank learns in a short run."""
    loss, accuracy = learn(folder, example(("4", "1"), with_solver(write_model(folder, "alone"))))
    assert loss < 1 and accuracy > 60
    return loss, accuracy


@pytest.mark.parametrize("headers, standard", [("include", "c++17"), ("old/include", "c++11")], ids=["1.0", "older"])
def test_the_guides_program_compiles(folder, headers, standard):
    """With the interface of Caffe 1.0, and with that of an older one."""
    program, = re.findall(r"^```cpp\n(.*?)^```", GUIDE, re.S | re.M)
    (folder / "guide.cc").write_text(program)
    subprocess.run(["c++", f"-std={standard}", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-fsyntax-only", "-DCPU_ONLY", f"-I{STAGE}/include",
                    "-isystem", f"{CAFFE}/{headers}", "-isystem", f"{CAFFE}/include", folder / "guide.cc"], check=True)


def test_a_batch_that_does_not_divide(folder, example):
    code, _, err = Job(["--quiet", *example(("4", "3"))], env=ONE_THREAD, cwd=folder).finish()
    assert code != 0 and "a batch of 64 does not divide among 3 ranks and 1 passes" in err


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_two_passes_are_one_batch_of_twice_the_size(folder, example, alone, ranks, tmp_path):
    twice = write_model(tmp_path, "twice", solver=[("iter_size: 1", "iter_size: 2")])
    assert same(learn(folder, example(("4", str(ranks)), with_solver(twice))), alone)


def test_gradients_that_are_reduced_after_backward(folder, example, alone, tmp_path):
    late = write_model(tmp_path, "late", solver=[("iter_size: 1", "iter_size: 2\nlayer_wise_reduce: false")])
    assert same(learn(folder, example(("4", "2"), with_solver(late))), alone)


def test_layers_that_share_parameters(folder, example, tmp_path):
    """Between them is one whose backward takes long; a gradient that is submitted before it is complete is reduced meanwhile."""
    both = 'param { name: "w" } param { name: "b" }'
    layers = [("second", "ip1", both, 64), ("wide", "second", "", 4096), ("narrow", "wide", "", 64), ("third", "narrow", both, 64)]
    net = [('bottom: "ip1"\n  top: "ip2"', 'bottom: "third"\n  top: "ip2"'),
           ('layer {\n  name: "ip2"', "".join(LAYER.format(*layer) for layer in layers) + 'layer {\n  name: "ip2"')]
    shared = with_solver(write_model(tmp_path, "shared", net, [("base_lr: 0.02", "base_lr: 0.005")]))
    assert same(learn(folder, example(("4", "1"), shared)), learn(folder, example(shared), AIACC_FUSION_BYTES="1024"))


def test_gradients_that_travel_in_16_bits(folder, example, alone):
    loss, accuracy = learn(folder, example(("4", "2"), with_solver(f"{folder}/alone.solver")), AIACC_ALLREDUCE_DTYPE="bf16")
    assert 0 < abs(loss - alone[0]) < 0.05 and abs(accuracy - alone[1]) < 2


@pytest.mark.parametrize("net, said", [
    ([("num_output: 64", "num_output: 48")],
     "ranks 0 and 1 have different models: rank 0 has parameter 0 of layer 'ip2' of shape 10 64 (640) of float, "
     "rank 1 has parameter 0 of layer 'ip2' of shape 10 48 (480) of float"),
    ([('convolution_param { num_output: 16', 'convolution_param { bias_term: false num_output: 16'), ("  param { lr_mult: 2 }\n", "")],
     "rank 1 has no more parameters"),
], ids=["shape", "missing"])
def test_other_models_are_told_on_all_ranks(folder, example, net, said, tmp_path):
    for rank in range(3):
        write_model(tmp_path, f"model.{rank}", net if rank == 1 else ())
    words = ["sh", "-c", f"exec ./lenet_digits {tmp_path}/model.$AIACC_RANK.solver {IMAGES}"]
    code, out, err = Job(["--quiet", "-np", 2, *words], env=ONE_THREAD, cwd=folder).finish()
    assert code != 0 and out == "" and said in err, err


def test_a_gradient_that_is_not_finite_is_told_and_left_out(folder, example, tmp_path):
    wild = write_model(tmp_path, "wild", [("pool: MAX", "pool: AVE")],  # as Caffe's MAX writes beside its memory then
                       [("base_lr: 0.02", "base_lr: 1e30"), ("max_iter: 44", "max_iter: 5")])
    code, out, err = Job(["--quiet", *example(("4", "2"), with_solver(wild))], env={**ONE_THREAD, "AIACC_NAN_CHECK": "yes"},
                         cwd=folder).finish()
    assert code == 0 and "All ranks make this step with gradients of 0." in err, err


def test_ranks_stop_together_when_one_gets_a_signal(folder, example, tmp_path):
    """SIGHUP is a snapshot, by rank 0, and SIGINT the end."""
    long = write_model(tmp_path, "long", solver=[("random_seed: 1", f'random_seed: 1\nsnapshot_prefix: "{tmp_path}/at"'),
                                                 ("max_iter: 44", "max_iter: 1000000"), ("test_interval: 22", "test_interval: 1000000\nsnapshot: 20")])
    _, *program = example(with_solver(long))[1:]
    shell = f"echo $$ >{tmp_path}/pid.$AIACC_RANK; exec {shlex.join(program)}"
    job = Job(["--quiet", "-np", 4, "sh", "-c", shell], env=ONE_THREAD, cwd=folder)
    job.wait_for((tmp_path / "at_iter_20.solverstate").exists, "the first snapshot")
    last = int((tmp_path / "pid.3").read_text())

    def tell(number):
        with contextlib.suppress(ProcessLookupError):  # why it has ended is said below
            os.kill(last, number)

    def took_one_more():
        tell(signal.SIGHUP)
        made_one = any(int(re.findall(r"iter_(\d+)", one.name)[0]) % 20 for one in tmp_path.glob("at_iter_*.solverstate"))
        return made_one or job.process.poll() is not None
    job.wait_for(took_one_more, "a snapshot between those of the solver file")
    tell(signal.SIGINT)
    code, out, err = job.finish()
    assert code == 0 and out.startswith("final: loss") and err == "", f"exit code {code}\n{out}\n{err}"


def test_an_action_function_on_some_ranks_only_is_told(folder, example, tmp_path):
    """The guide's command builds what the example becomes where one rank has none."""
    text = (SOURCE / "examples/caffe/lenet_digits.cc").read_text()
    call = "sync.set_action_function(signals.GetActionFunction());"
    assert call in text
    (tmp_path / "some.cc").write_text(text.replace(call, f"if (rank != 1) {call}"))
    build, _ = re.findall(r"^    (.*)$", GUIDE, re.M)
    flags = " ".join([f"-I{STAGE}/include", f"-L{STAGE}/lib", f"-Wl,-rpath,{STAGE}/lib", "-laiacc", *sanitizer()])
    build = build.replace("$(pkg-config --cflags --libs aiacc)", flags).replace("examples/caffe/lenet_digits.cc", f"{tmp_path}/some.cc")
    subprocess.run(build.replace("-o lenet_digits", f"-o {tmp_path}/some"), shell=True, cwd=folder, env={**os.environ, "CAFFE": CAFFE}, check=True)
    code, out, err = Job(["--quiet", *example(("4", "2"), ("./lenet_digits", [tmp_path / "some"]))], env=ONE_THREAD, cwd=folder).finish()
    assert code != 0 and out == "" and "set_action_function() was called by some ranks only" in err, err


PYCAFFE = f"{CAFFE}/python"
PYCAFFE_ENVIRONMENT = {**ENVIRONMENT, **ONE_THREAD, "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:{PYCAFFE}", "GLOG_minloglevel": "2"}
NO_PYCAFFE = not os.path.exists(PYCAFFE)


def pycaffe_job(ranks, folder, *words):
    return Job(["--quiet", "-np", ranks, "/usr/bin/python3", SOURCE / "tests/programs/caffe_training.py", SOURCE, folder, *words],
               env=PYCAFFE_ENVIRONMENT).finish(timeout=200)


@pytest.mark.skipif(NO_PYCAFFE, reason="this Caffe has no pycaffe")
@pytest.mark.parametrize("ranks, iter_size, told", [(2, 1, 0), (4, 2, 0), (4, 2, 2), (2, 1, 1)])
def test_pycaffe(ranks, iter_size, told, tmp_path):
    results = []
    for number in (1, ranks):
        code, out, err = pycaffe_job(number, tmp_path, iter_size, told)
        assert (code, err) == (0, ""), out + err
        results.append([float(number) for number in out.split()])
    assert same(*results) and results[0][0] < 1 and results[0][1] > 60, results


@pytest.mark.skipif(NO_PYCAFFE, reason="this Caffe has no pycaffe")
def test_pycaffe_with_another_iter_size(tmp_path):
    code, _, err = pycaffe_job(2, tmp_path, 1, 2)
    assert code != 0 and "synchronize was told an iter_size of 2, and the solver's is 1" in err, err


@pytest.mark.skipif(NO_PYCAFFE, reason="this Caffe has no pycaffe")
def test_the_guides_script(tmp_path):
    """With arrays for its solver, which the guide's reader has in a database."""
    script, = re.findall(r"^```python\n(.*?)^```", GUIDE, re.S | re.M)
    before = "aiacc.caffe.synchronize("
    assert before in script
    data = """import numpy
pixels, labels = numpy.ones((64, 1, 8, 8), numpy.float32), numpy.ones((64, 1, 1, 1), numpy.float32)
solver.net.set_input_arrays(pixels, labels)
"""
    (tmp_path / "train.py").write_text(script.replace(before, data + before) + "print(solver.iter)\n")
    written = write_model(tmp_path, "model", solver=[("test_iter: 1\ntest_interval: 22\n", "")])
    (tmp_path / "solver.prototxt").write_text(open(written).read())
    code, out, err = Job(["--quiet", "-np", 2, "/usr/bin/python3", "train.py"], env=PYCAFFE_ENVIRONMENT, cwd=tmp_path).finish()
    assert (code, out, err) == (0, "10\n10\n", "")
