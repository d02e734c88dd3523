"""The KVStores of aiacc.mxnet, run by ranks on one host."""
import pytest

from launcher_support import Job
from python_support import ENVIRONMENT, MXNET_ENVIRONMENT, PACKAGE_PROGRAMS, PATIENCE_S, SOURCE, check_job, mxnet_python, python_job


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_stores(ranks):
    words = [] if ranks == 4 else ["check_an_embedding_of_row_sparse_gradients"]
    check_job(mxnet_python(), ranks, "mxnet_store.py", *words, env={**MXNET_ENVIRONMENT, "DIGITS": str(SOURCE / "examples/digits/digits.txt")})


def replicas_in(folder, victim, optimizer):
    """What two ranks have learned with two more that only serve, of which `victim` is killed after some steps. How there are two is said
    by the environment, and for victim 3 by the program."""
    folder.mkdir()
    by_environment = victim != 3
    how = {"AIACC_KV_REPLICAS": "2"} if by_environment else {}
    command = ["--quiet", "-np", 4, *(["--servers", 2] if by_environment else []), "--min-np", 3, mxnet_python(), PACKAGE_PROGRAMS / "mxnet_replicas.py", victim, optimizer, folder / "state"]
    code, out, err = Job(command, env={**ENVIRONMENT, **MXNET_ENVIRONMENT, **how}).finish(timeout=PATIENCE_S)
    said = [line for line in err.splitlines() if "[AR-RANK-LOST]" not in line]
    assert (code, said) == (0, []) and ("the job goes on with 3 ranks" in err) == (victim >= 0), f"exit code {code}\n{out}\n{err}"
    assert sorted(path.name for path in folder.iterdir()) == ["state.2", "state.3"]
    first, second = out.splitlines()
    assert first == second
    return first


@pytest.mark.parametrize("optimizer, victims", [("sgd", [2]), ("adam", [2, 3])], ids=["sgd", "adam"])
def test_training_goes_on_as_before_when_a_server_is_killed(optimizer, victims, tmp_path):
    """With one of the optimizers also the second server."""
    whole, *others = [replicas_in(tmp_path / str(victim), victim, optimizer) for victim in (-1, *victims)]
    assert all(one == whole for one in others)


@pytest.mark.parametrize("arguments, said", [("servers=2", "servers is 2, and the job has 2 ranks"), ("servers=1, replicas=2", "replicas is 2, and one rank serves only"),
                                             ("replicas=3", "replicas is 3")], ids=["servers", "place", "replicas"])
def test_roles_that_are_impossible_are_refused(arguments, said):
    program = f"import aiacc.mxnet as hvd\ntry:\n    hvd.create({arguments})\nexcept ValueError as error:\n    print(error, flush=True)"
    code, out, err = python_job(mxnet_python(), 2, program, env=MXNET_ENVIRONMENT)
    assert code == 0 and [said in line for line in out.splitlines()] == [True, True], f"exit code {code}\n{out}\n{err}"
