"""The collectives and the key-value store of aiacc.torch, run by ranks on one host."""
import pytest

from python_support import check_job, check_jobs, each_torch, each_torch_with


@pytest.mark.parametrize("python, ranks", each_torch_with(1, 2, 3))
def test_collectives_and_store(python, ranks):
    check_jobs(python, ranks, ["torch_collectives.py", "torch_kvstore.py"])


@pytest.mark.parametrize("python, ranks", [pytest.param(one.values[0], ranks, id=f"{one.id}-{ranks}", marks=one.marks)
                                           for one, ranks in zip((each_torch() * 2)[:2], (4, 2))])
def test_calls_that_block_meet_those_that_do_not(python, ranks):
    check_job(python, ranks, "torch_meetings.py", env={"AIACC_LOG": "error"})


@pytest.mark.parametrize("python", each_torch())
def test_arguments_of_the_wrong_type(python):
    check_job(python, 2, "torch_arguments.py")
