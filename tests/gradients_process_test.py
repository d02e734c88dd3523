"""The gradient engine on real ranks, on one host and on hosts that share nothing but a network (tests/namespace_hosts.py)."""
import re

import pytest

import namespace_hosts
from launcher_support import Job, compiled
from runtime_process_test import said

NO_HOSTS = namespace_hosts.unavailable()
PLACES = [1, 2, 4, "h0:1,h1:1", "h0:2,h1:1,h2:2"]


@pytest.fixture(scope="module")
def hosts():
    if NO_HOSTS is not None:
        yield None
        return
    with namespace_hosts.Hosts(3) as made:
        yield made


@pytest.fixture(scope="module")
def gradients():
    return compiled("tests/programs/gradients.c")


def run(hosts, where, *arguments):
    if isinstance(where, int):
        return Job(["-np", where, *arguments])
    if hosts is None:
        pytest.skip(NO_HOSTS)
    return Job(["--launch-agent", hosts.enter, "-H", where, *arguments])


@pytest.mark.parametrize("mode", ["order", "places", "steady", "departs", "two", "misuse"])
@pytest.mark.parametrize("where", PLACES)
def test_gradients(hosts, gradients, where, mode):
    code, out, err = run(hosts, where, gradients, mode).finish()
    assert (code, out, said(err)) == (0, "", ""), err


@pytest.mark.parametrize("where", [2, 3, "h0:1,h1:1", "h0:2,h1:1"])
def test_different_tensors_of_one_name_are_told_on_every_rank(hosts, gradients, where):
    code, _, err = run(hosts, where, gradients, "mismatch").finish()
    assert code == 0, err
    sentences = re.findall(r"^rank \d: wait: mismatch: (.*)", err, re.M)
    assert len(sentences) == (where if isinstance(where, int) else where.count(",") + where.count("2") + 1), err
    for sentence in sentences:
        assert "'weight'" in sentence and "20 fp32, sum" in sentence and "10 fp32, sum" in sentence, err


@pytest.mark.parametrize("where", [2, 3, "h0:1,h1:1"])
def test_who_waits_for_a_rank_that_freed_its_engine_is_told(hosts, gradients, where):
    code, _, err = run(hosts, where, gradients, "freed").finish()
    assert code == 0, err
    assert "has freed the gradient engine 'freed'" in err, err


@pytest.mark.parametrize("where, ranks", [(2, 2), (3, 3), ("h0:1,h1:1", 2), ("h0:2,h1:1,h2:2", 5)])
def test_survivors_of_a_step_name_the_dead(hosts, gradients, where, ranks):
    code, _, err = run(hosts, where, "--kill-grace", "20", gradients, "death").finish()
    assert code == 137, err
    assert len(re.findall(r"^rank \d: survivor: peer failed: .*rank 1 on", err, re.M)) == ranks - 1, err
