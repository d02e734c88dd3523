"""Long messages between ranks of a host, as root and as an ordinary user, and where the system forbids to read a peer's memory."""
import re

import pytest

from launcher_support import compiled, run, users


@pytest.fixture(scope="module")
def program():
    return compiled("tests/programs/long_messages.c")


@pytest.fixture(params=["permitted", "forbidden"])
def reading(request):
    return [] if request.param == "permitted" else ["forbidden"]


@pytest.mark.parametrize("user", users())
@pytest.mark.parametrize("what", ["both", "unasked", "dropped"])
def test_long_messages_arrive_whole(program, reading, what, user):
    code, out, err = run("-np", 2, program, what, *reading, user=user)
    assert (code, out) == (0, ""), err


@pytest.mark.parametrize("user", users())
def test_a_sender_that_is_killed_while_it_is_read_is_named(program, reading, user):
    code, out, err = run("-np", 2, program, "dies", *reading, user=user)
    assert code == 137 and "rank 0 on host" in err and "killed by signal 9" in err, (code, err)
    said = re.search(r"(\d+) messages, then ([\w ]+): (.*)", err)
    assert said is None or said[2] == "peer failed" and "rank 0" in said[3], err
