"""The snippets of docs/pytorch.md run, and the example says what Horovod's would."""
import re
import shlex

import pytest

from launcher_support import Job
from python_support import ENVIRONMENT, SOURCE, each_torch, python_job

SNIPPETS = re.findall(r"^```python\n(.*?)^```", (SOURCE / "docs/pytorch.md").read_text(), re.S | re.M)


DISTRIBUTED = [one for one in SNIPPETS if "dist.init_process_group(" in one]


@pytest.mark.parametrize("python", each_torch())
def test_each_snippet_in_horovods_style_runs(python):
    """In one job, as importing torch takes longer than all of them."""
    mine = [one for one in SNIPPETS if one not in DISTRIBUTED]
    assert len(mine) == 17
    code, out, err = python_job(python, 2, "hvd.shutdown()\n".join(mine))
    assert (code, err) == (0, "") and re.fullmatch(r"loss [\d.]+ on 2 ranks\n", out), out + err


@pytest.mark.parametrize("python", each_torch())
@pytest.mark.parametrize("number", range(3))
def test_each_snippet_of_torch_distributed_runs(python, number):
    """Each in a job of its own: torch's store of a second default group has the port of the first, which may still be there."""
    assert len(DISTRIBUTED) == 3
    assert python_job(python, 2, DISTRIBUTED[number]) == (0, "", "")


def test_the_example_differs_from_horovods_by_its_import_line_only():
    text = (SOURCE / "examples/pytorch/digits_horovod.py").read_text()
    assert re.findall(r".*aiacc.*", text.split('"""', 2)[2]) == ["import aiacc.torch as hvd"]


@pytest.mark.parametrize("python", each_torch()[:1])
def test_the_command_of_an_elastic_job(python, tmp_path):
    """With the snippet above it."""
    text = (SOURCE / "docs/pytorch.md").read_text()
    command, = re.findall(r"^ *aiaccrun (-np \d+ --min-np .*) python train.py$", text, re.M)
    snippet, = [one for one in SNIPPETS if "@hvd.elastic.run" in one]
    script = tmp_path / "train.py"
    script.write_text(snippet + "print(hvd.size(), state.epoch)\n")
    code, out, err = Job(["--quiet", *shlex.split(command), python, script], env=ENVIRONMENT).finish(timeout=200)
    assert (code, out, err) == (0, "3 2\n" * 3, ""), out + err
