"""The choice of algorithms between hosts (AIACC_ALGORITHM), over a network."""
import pytest

import namespace_hosts
from launcher_support import STAGE, Job

NO_HOSTS = namespace_hosts.unavailable()
pytestmark = pytest.mark.skipif(NO_HOSTS is not None, reason=str(NO_HOSTS))
PERF = STAGE / "bin/aiacc-perf"
SIZES = ["-b", "8", "-e", "1M", "-f", "512", "-n", "3", "-w", "1", "--bound", "0"]


@pytest.fixture(scope="module")
def hosts():
    with namespace_hosts.Hosts(3) as made:
        yield made


def on(hosts, ranks, *arguments):
    return Job(["--launch-agent", hosts.enter, "-H", f"h0:{ranks},h1:{ranks}", *arguments])


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_forced_algorithm_serves_short_calls_too_and_one_that_cannot_is_named_once(hosts, ranks):
    code, _, err = on(hosts, ranks, "-x", "AIACC_ALGORITHM=allreduce=ring", PERF, "allreduce", *SIZES).finish()
    assert code == 0, err
    assert "AIACC_ALGORITHM" not in err
    code, _, err = on(hosts, ranks, "-x", "AIACC_ALGORITHM=allreduce=halving-doubling", PERF, "allreduce", *SIZES).finish()
    assert code == 0, err
    told = [line for line in err.splitlines() if "AIACC_ALGORITHM permits no algorithm that can serve allreduce" in line]
    assert 1 <= len(told) <= ranks, err
    assert "(halving-doubling: it needs a power of two of ranks, at least four), so " in told[0]


@pytest.mark.parametrize("hosts_of_ranks", ["h0:1,h1:1,h2:1", "h0:2,h1:3,h2:1"])
def test_a_long_broadcast_goes_along_a_chain_from_any_root(hosts, hosts_of_ranks):
    for root in ("0", "2"):
        code, out, err = Job(["--launch-agent", hosts.enter, "-H", hosts_of_ranks, "-x", "AIACC_LOG=collective=info", PERF, "broadcast",
                              "-b", "64", "-e", "5M", "-f", "16", "-n", "3", "-w", "1", "--bound", "0", "-r", root]).finish()
        assert code == 0, err
        assert "# wrong elements    : 0 OK" in out, out
        assert "broadcast between 3 ranks: binomial up to 32K, chain above (predicted" in err, err


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_choice_is_logged_once_a_group(hosts, ranks):
    code, _, err = on(hosts, ranks, "-x", "AIACC_LOG=collective=info", PERF, "allreduce", *SIZES).finish()
    assert code == 0, err
    world = f"the world of {2 * ranks} ranks: allreduce between 2 ranks: recursive-doubling up to 64K, ring above (measured)"
    assert err.count(world) == 1, err


def test_ranks_with_different_values_end_with_a_sentence(hosts):
    script = f'test "$AIACC_RANK" = 0 || export AIACC_ALGORITHM=allreduce=^ring; exec {PERF} allreduce -b 8 -e 8'
    code, _, err = on(hosts, 1, "sh", "-c", script).finish()
    assert code != 0
    assert "rank 0 on host h0 has no AIACC_ALGORITHM, and rank 1 on host h1 has AIACC_ALGORITHM=allreduce=" in err
    assert "give all ranks the same" in err
