"""The examples in examples/mxnet learn the same on 2 and 4 ranks as on one."""
import pytest

from launcher_support import Job
from python_support import ENVIRONMENT, MXNET_ENVIRONMENT, SOURCE, mxnet_python


def losses(name, folder, ranks, *words):
    result = folder / f"{name}.{ranks}"
    command = ["--quiet", "-np", ranks, mxnet_python(), SOURCE / f"examples/mxnet/{name}.py", "--data", SOURCE / "examples/digits/digits.txt",
               "--epochs", 2, "--result", result, *words]
    code, out, err = Job(command, env={**ENVIRONMENT, **MXNET_ENVIRONMENT}).finish(timeout=200)
    assert code == 0 and out.count("epoch") == 2, f"exit code {code}\n{out}\n{err}"
    return [[float(number) for number in line.split()] for line in result.read_text().splitlines()]


@pytest.mark.parametrize("name, ranks, words", [("digits_trainer", 2, ()), ("digits_module", 4, ()), ("digits_module", 2, ("--kvstore", "dist_sync_aiacc")),
                                                ("digits_arcface", 4, ())], ids=["trainer", "module", "kvstore", "arcface"])
def test_learns_what_one_rank_does(name, ranks, words, tmp_path):
    alone, together = losses(name, tmp_path, 1, *words), losses(name, tmp_path, ranks, *words)
    for (loss, accuracy), (other, others_accuracy) in zip(alone, together):
        assert abs(loss - other) < 1e-4 and abs(accuracy - others_accuracy) < 0.01, (alone, together)
    assert together[1][0] < together[0][0] and together[1][1] > 0.5, together


def test_learns_from_each_ranks_gradients_at_once(tmp_path):
    first, second = losses("digits_module", tmp_path, 2, "--kvstore", "dist_async_aiacc")
    # Two epochs, whose accuracy depends on which rank's gradients come first; guessing has 0.1.
    assert second[0] < first[0] and second[1] > 0.3, (first, second)
