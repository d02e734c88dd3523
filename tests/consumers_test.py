"""Two small consumers of aiacc.h, shaped like frameworks, as real ranks on one host and on several: what they need is there."""
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


@pytest.mark.parametrize("where", [["-np", 1], ["-np", 3], ["-H", "h0:2,h1:1,h2:1"]], ids=["1", "3", "hosts"])
@pytest.mark.parametrize("consumer", ["caffe_solver", "mxnet_kvstore"])
def test_consumer(hosts, consumer, where):
    if where[0] == "-H":
        if hosts is None:
            pytest.skip(NO_HOSTS)
        where = ["--launch-agent", hosts.enter, *where]
    code, out, err = Job([*where, compiled(f"tests/programs/{consumer}.c")]).finish()
    assert (code, out, said(err)) == (0, "", "")
