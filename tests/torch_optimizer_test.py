"""The optimizers of aiacc.torch, with states and the sampler, run by ranks on one host."""
import pytest

from launcher_support import users
from python_support import ENVIRONMENT, PACKAGE_PROGRAMS, PATIENCE_S, check_job, check_jobs, each_torch, each_torch_with, torch_version


@pytest.mark.parametrize("python, ranks", each_torch_with(1, 3))  # two are those of test_on_hosts_of_one_rank
def test_optimizers(python, ranks):
    check_jobs(python, ranks, ["torch_optimizer.py", "torch_sparse_gradients.py", "torch_dgc.py", "torch_overlap.py", "torch_overlap_models.py",
                               "torch_local_sgd.py", "torch_replicated_vars.py", "torch_gradient_memory.py", *(["torch_adasum.py"] if ranks < 3 else [])])


@pytest.mark.parametrize("python, ranks", each_torch_with(3, 4))
def test_gossip(python, ranks):
    check_job(python, ranks, "torch_gossip.py")


def test_gossip_between_hosts(launch):
    words = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    program = PACKAGE_PROGRAMS / "torch_gossip.py"
    checks = ["check_the_ranks_of_a_host_are_one_node", "check_in_16_bits", "check_ranks_that_have_joined_are_left_out"]
    code, out, err = launch("h0:2,h1:1,h2:2", "--quiet", "env", *words, each_torch()[0].values[0], program, *checks).finish(timeout=PATIENCE_S)
    assert (code, out) == (0, "all is well\n" * 5), f"exit code {code}\n{out}\n{err}"


@pytest.mark.parametrize("python", each_torch())
def test_adasum(python):
    check_job(python, 4, "torch_adasum.py")


@pytest.mark.parametrize("python", each_torch())
def test_on_hosts_of_one_rank(launch, python):
    words = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    programs = ["torch_optimizer.py", "torch_sparse_gradients.py", "torch_gradient_memory.py", "torch_dgc.py", "torch_overlap.py",
                "torch_overlap_models.py", "torch_local_sgd.py"]
    command = ["--quiet", "env", *words, python, PACKAGE_PROGRAMS / "several.py", *programs]
    code, out, err = launch("h0:1,h1:1", *command).finish(timeout=PATIENCE_S)
    assert (code, out) == (0, "all is well\n" * 14), f"exit code {code}\n{out}\n{err}"


@pytest.mark.parametrize("python, ranks", each_torch_with(3))
def test_a_gradient_that_is_not_finite(python, ranks):
    check_jobs(python, ranks, ["torch_optimizer.py:check_a_gradient_that_is_not_finite_leaves_out_the_step_on_all_ranks",
                               "torch_sparse_gradients.py:check_rows_that_are_not_finite_leave_out_the_step",
                               "torch_dgc.py:check_a_gradient_that_is_not_finite", "torch_overlap.py:check_a_gradient_that_is_not_finite"], env={"AIACC_NAN_CHECK": "yes"})


@pytest.mark.parametrize("user", users())
def test_as_another_user(user):
    """With the system's torch, which every user may read."""
    check_job(system_torch(), 2, "torch_optimizer.py", "check_it_is_training_on_the_joined_batch", user=user)


def system_torch():
    if torch_version("/usr/bin/python3") is None:
        pytest.skip("/usr/bin/python3 has no torch; apt-get install python3-torch")
    return "/usr/bin/python3"
