"""Tables in the gradient engine, on real ranks: rows that ranks submit, and their sums."""
import pytest

from launcher_support import compiled
from runtime_process_test import said


@pytest.fixture(scope="module")
def program():
    return compiled("tests/programs/gradients_rows.c")


@pytest.mark.parametrize("mode", ["train", "average", "bad", "join", "nan"])
@pytest.mark.parametrize("where", [1, 2, 3, "h0:1,h1:1", "h0:2,h1:1,h2:2"])
def test_gradients_of_tables(launch, program, where, mode):
    if mode == "join" and where == 1:
        where = 4
    code, _, err = launch(where, program, mode).finish()
    assert (code, said(err)) == (0, ""), err


def test_who_waits_for_a_submission_that_is_refused_meanwhile_waits_no_longer(launch, program):
    code, _, err = launch(2, program, "refused").finish()
    assert (code, said(err)) == (0, ""), err


@pytest.mark.parametrize("where", [2, "h0:2,h1:1"])
def test_different_tables_of_one_name_are_told_on_every_rank(launch, program, where):
    code, _, err = launch(where, program, "mismatch").finish()
    assert (code, said(err)) == (0, ""), err


@pytest.mark.parametrize("where", [3, "h0:1,h1:1,h2:1", "h0:2,h1:2"])
def test_a_rank_that_dies_ends_the_reduction_of_tables(launch, program, where):
    code, _, err = launch(where, "--min-np", "1", program, "lost").finish()
    assert code == 0 and "exited with status 7" in err, err
