"""Two small consumers of aiacc.h, shaped like frameworks, as real ranks on one host and on several: what they need is there."""
import pytest

from launcher_support import compiled
from runtime_process_test import said


@pytest.mark.parametrize("where", [1, 3, "h0:2,h1:1,h2:1"])
@pytest.mark.parametrize("consumer", ["caffe_solver", "mxnet_kvstore"])
def test_consumer(launch, consumer, where):
    code, out, err = launch(where, compiled(f"tests/programs/{consumer}.c")).finish()
    assert (code, out, said(err)) == (0, "", "")
