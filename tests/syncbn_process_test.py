"""SyncBN and the sharded softmax on real ranks, on one host and on hosts that share nothing but a network (tests/namespace_hosts.py)."""
import re

import pytest

import namespace_hosts
from launcher_support import Job, compiled
from runtime_process_test import said

NO_HOSTS = namespace_hosts.unavailable()


@pytest.fixture(scope="module")
def hosts():
    if NO_HOSTS is not None:
        yield None
        return
    with namespace_hosts.Hosts(3) as made:
        yield made


@pytest.fixture(scope="module")
def syncbn():
    return compiled("tests/programs/syncbn.c")


def run(hosts, where, *arguments):
    if isinstance(where, int):
        return Job(["-np", where, *arguments])
    if hosts is None:
        pytest.skip(NO_HOSTS)
    return Job(["--launch-agent", hosts.enter, "-H", where, *arguments])


@pytest.mark.parametrize("where", [1, 2, 4, "h0:1,h1:1", "h0:2,h1:1,h2:2"])
def test_layers_are_normalised_over_the_ranks(hosts, syncbn, where):
    code, out, err = run(hosts, where, syncbn, "steps").finish()
    assert (code, out, said(err)) == (0, "", ""), err


@pytest.mark.parametrize("where, ranks", [(2, 2), (3, 3), ("h0:1,h1:1", 2), ("h0:2,h1:1", 3)])
def test_another_number_of_channels_is_told_on_every_rank(hosts, syncbn, where, ranks):
    code, _, err = run(hosts, where, syncbn, "channels").finish()
    assert code == 0, err
    sentences = re.findall(r"^rank \d: forward: mismatch: (SyncBN 'layers', forward over 1[02] channels here: .*)", err, re.M)
    assert len(sentences) == ranks, err
    for sentence in sentences:
        assert "'10 channels'" in sentence and "'12 channels'" in sentence, err


@pytest.mark.parametrize("where, ranks", [(3, 3), ("h0:1,h1:1", 2), ("h0:2,h1:1", 3)])
def test_a_rank_that_is_out_of_batches_is_told_on_every_rank(hosts, syncbn, where, ranks):
    code, _, err = run(hosts, where, "--timeout", "60", syncbn, "join").finish()
    assert code == 0, err
    sentences = re.findall(r"^rank \d: out of batches: mismatch: (SyncBN 'layers', .*)", err, re.M)
    assert len(sentences) == ranks and all("barrier" in one and "'3 channels'" in one for one in sentences), err


@pytest.mark.parametrize("where, ranks", [(2, 2), ("h0:1,h1:1", 2), ("h0:2,h1:1,h2:2", 5)])
def test_survivors_name_the_dead(hosts, syncbn, where, ranks):
    code, _, err = run(hosts, where, "--kill-grace", "20", syncbn, "death").finish()
    assert code == 137, err
    assert len(re.findall(r"^rank \d: survivor: peer failed: .*rank 1 on", err, re.M)) == ranks - 1, err


@pytest.mark.parametrize("where", [1, 3, "h0:1,h1:1", "h0:2,h1:1,h2:2"])
def test_classes_are_split_over_the_ranks(hosts, where):
    code, out, err = run(hosts, where, compiled("tests/programs/softmax.c")).finish()
    assert (code, out, said(err)) == (0, "", ""), err
