"""Groups of real ranks, on one host and on hosts that share nothing but a network (tests/namespace_hosts.py)."""
import re

import pytest

import namespace_hosts
from launcher_support import Job, compiled
from runtime_process_test import said

NO_HOSTS = namespace_hosts.unavailable()
PLACES = [None, "h0:1,h1:1", "h0:2,h1:1,h2:2", "h0:2,h1:2"]


@pytest.fixture(scope="module")
def hosts():
    if NO_HOSTS is not None:
        yield None
        return
    with namespace_hosts.Hosts(3) as made:
        yield made


@pytest.fixture(scope="module")
def groups():
    return compiled("tests/programs/groups.c")


def run(hosts, where, *arguments):
    if where is None:
        return Job(["-np", 4, *arguments])
    if hosts is None:
        pytest.skip(NO_HOSTS)
    return Job(["--launch-agent", hosts.enter, "-H", where, *arguments])


@pytest.mark.parametrize("mode", ["sorts", "errors", "cycles"])
@pytest.mark.parametrize("where", PLACES)
def test_groups(hosts, groups, where, mode):
    code, out, err = run(hosts, where, groups, mode).finish()
    assert (code, out, said(err)) == (0, "", "")


@pytest.mark.parametrize("where, ranks", [(None, 4), ("h0:2,h1:1,h2:2", 5)])
def test_groups_without_the_dead_go_on(hosts, groups, where, ranks):
    code, _, err = run(hosts, where, "--kill-grace", "20", groups, "death").finish()
    assert code == 3
    assert len(re.findall(r"^survivor \d: group 'with the dead' of \d ranks has lost its rank \d: .*rank 1 on", err, re.M)) == ranks - 1, err
    assert "not true" not in err, err
