"""Groups of real ranks, on one host and on hosts that share nothing but a network (tests/namespace_hosts.py)."""
import re

import pytest

from launcher_support import compiled
from runtime_process_test import said

PLACES = [4, "h0:1,h1:1", "h0:2,h1:1,h2:2", "h0:2,h1:2"]


@pytest.fixture(scope="module")
def groups():
    return compiled("tests/programs/groups.c")


@pytest.mark.parametrize("mode", ["sorts", "errors", "cycles"])
@pytest.mark.parametrize("where", PLACES)
def test_groups(launch, groups, where, mode):
    code, out, err = launch(where, groups, mode).finish()
    assert (code, out, said(err)) == (0, "", "")


@pytest.mark.parametrize("where, ranks", [(4, 4), ("h0:2,h1:1,h2:2", 5)])
def test_groups_without_the_dead_go_on(launch, groups, where, ranks):
    code, _, err = launch(where, "--kill-grace", "20", groups, "death").finish()
    assert code == 3
    assert len(re.findall(r"^survivor \d: group 'with the dead' of \d ranks has lost its rank \d: .*rank 1 on", err, re.M)) == ranks - 1, err
    assert "not true" not in err, err
