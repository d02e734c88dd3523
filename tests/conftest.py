"""What tests of several files ask for by name. A file may have its own of that name."""
import pytest

import namespace_hosts


@pytest.fixture(scope="module")
def hosts():
    """h0, h1 and h2, which share nothing but a network."""
    if (reason := namespace_hosts.unavailable()) is not None:
        pytest.skip(str(reason))
    with namespace_hosts.Hosts(3) as made:
        yield made


@pytest.fixture(scope="module")
def rank():
    """The program that most tests run as a rank."""
    from launcher_support import compiled  # which wants the installed tree
    return compiled("tests/programs/rank.c")


@pytest.fixture
def launch(request):
    """launch(where, *arguments) starts a job of `where` ranks on this host, or on hosts as in "h0:2,h1:1". `env` is added to its
    environment, which has no other AIACC_ variables."""
    from launcher_support import Job

    def start(where, *arguments, env=None):
        if isinstance(where, int):
            return Job(["-np", where, *arguments], env=env)
        return Job(["--launch-agent", request.getfixturevalue("hosts").enter, "-H", where, *arguments], env=env)
    return start
