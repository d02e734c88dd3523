"""The gradient engine on real ranks, on one host and on hosts that share nothing but a network (tests/namespace_hosts.py)."""
import re

import pytest

from launcher_support import compiled, with_longer_limits
from runtime_process_test import said

PLACES = [1, 2, 4, "h0:1,h1:1", "h0:2,h1:1,h2:2"]


@pytest.fixture(scope="module")
def gradients():
    return compiled("tests/programs/gradients.c")


@pytest.mark.parametrize("mode", ["order", "places", "steady", "priorities", "departs", "two", "misuse", "wait-for"])
@pytest.mark.parametrize("where", PLACES)
def test_gradients(launch, gradients, where, mode):
    code, out, err = launch(where, gradients, mode).finish()
    assert (code, out, said(err)) == (0, "", ""), err


@pytest.mark.parametrize("where", [2, 3, "h0:1,h1:1", "h0:2,h1:1"])
def test_different_tensors_of_one_name_are_told_on_every_rank(launch, gradients, where):
    code, _, err = launch(where, gradients, "mismatch").finish()
    assert code == 0, err
    sentences = re.findall(r"^rank \d: wait: mismatch: (.*)", err, re.M)
    assert len(sentences) == (where if isinstance(where, int) else where.count(",") + where.count("2") + 1), err
    for sentence in sentences:
        assert "'weight'" in sentence and "20 fp32, sum" in sentence and "10 fp32, sum" in sentence, err


@pytest.mark.parametrize("where", [2, 3, "h0:1,h1:1"])
def test_who_waits_for_a_rank_that_freed_its_engine_is_told(launch, gradients, where):
    code, _, err = launch(where, gradients, "freed").finish()
    assert code == 0, err
    assert "has freed the gradient engine 'freed'" in err, err


@pytest.mark.parametrize("where", [2, 4, "h0:1,h1:1"])
def test_a_rank_that_leaves_after_the_last_step_takes_no_result_from_others(launch, gradients, where):
    code, _, err = launch(where, gradients, "left").finish()
    assert code == 0 and err.count("has freed the gradient engine 'left'") == (where if isinstance(where, int) else 2) - 1, err


@pytest.mark.parametrize("where", [2, 4, "h0:1,h1:1"])
def test_who_joins_before_or_after_a_rank_has_left_is_told(launch, gradients, where):
    code, _, err = launch(where, gradients, "joins-late").finish()
    told = re.findall(r"^rank \d: join: aborted: .*has freed the gradient engine '(early|left)'$", err, re.M)
    assert code == 0 and len(told) == 2 * ((where if isinstance(where, int) else 2) - 1), err


@pytest.mark.parametrize("where", [3, "h0:2,h1:1"])
def test_the_time_out_of_a_tensor_names_the_ranks_that_lack_it(launch, gradients, where):
    def attempt(limit):
        code, _, err = launch(where, gradients, "late", limit).finish()
        sentences = re.findall(r"^rank [01]: wait: timed out: (.*)", err, re.M)
        assert code == 0 or "wait for what all have submitted: timed out" in err, err
        assert all(f"after {limit} s not all ranks have submitted them" in sentence for sentence in sentences), err
        named = ["gradient 'bias' is submitted by ranks 0, 1 and not by rank 2" in sentence for sentence in sentences]
        return code == 0 and any(named) and all(named), err
    is_named, err = with_longer_limits(attempt, lambda ended: ended[0], 2)
    assert is_named, err


@pytest.mark.parametrize("where, ranks", [(2, 2), (3, 3), ("h0:1,h1:1", 2), ("h0:2,h1:1,h2:2", 5)])
def test_survivors_of_a_step_name_the_dead(launch, gradients, where, ranks):
    code, _, err = launch(where, "--kill-grace", "20", gradients, "death").finish()
    assert code == 137, err
    assert len(re.findall(r"^rank \d: survivor: peer failed: .*rank 1 on", err, re.M)) == ranks - 1, err
