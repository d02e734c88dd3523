"""The snippets of docs/pytorch.md run, and the example says what Horovod's would."""
import re

import pytest

from python_support import SOURCE, each_torch, python_job

SNIPPETS = re.findall(r"^```python\n(.*?)^```", (SOURCE / "docs/pytorch.md").read_text(), re.S | re.M)


@pytest.mark.parametrize("python", each_torch())
def test_each_snippet_of_the_guide_runs(python):
    assert len(SNIPPETS) == 5
    # In one job, as importing torch takes longer than all of them.
    code, out, err = python_job(python, 2, "hvd.shutdown()\n".join(SNIPPETS))
    assert (code, err) == (0, "") and re.fullmatch(r"loss [\d.]+ on 2 ranks\n", out), out + err


def test_the_example_differs_from_horovods_by_its_import_line_only():
    text = (SOURCE / "examples/pytorch/digits_horovod.py").read_text()
    assert re.findall(r".*aiacc.*", text.split('"""', 2)[2]) == ["import aiacc.torch as hvd"]
