"""torch's own tests of torch.distributed (DistributedTest, in its wheel) on the back end aiacc: a selection that ends within a minute."""
import os
import re
import subprocess

import pytest

from python_support import ENVIRONMENT, PACKAGE_PROGRAMS, torch_pythons

COLLECTIVES = ["test_all_reduce_sum", "test_all_reduce_max", "test_all_reduce_sum_complex", "test_all_reduce_coalesced_full_group_sum", "test_all_gather",
               "test_all_gather_coalesced_simple", "test_all_gather_object_subgroup", "test_all_to_all_single_unequal_split", "test_all_to_all",
               "test_barrier_timeout_full_group", "test_broadcast", "test_gather", "test_scatter",
               "test_scatter_object_list", "test_reduce_sum", "test_reduce_full_group_product", "test_monitored_barrier_gloo*"]
MESSAGES = ["test_isend", "test_irecv", "test_send_recv", "test_send_recv_any_source_torch_profiler", "test_send_recv_with_tag",
            "test_batch_isend_irecv_gloo*"]
PARALLEL = ["test_DistributedDataParallelCPU", "test_ddp_grad_div_uneven_inputs", "test_ddp_hook_parity_powerSGD", "test_ddp_join_model_equivalence",
            "test_ddp_uneven_input_exception", "test_ddp_static_graph_nested_types", "test_ddp_compile_static_graph"]


def newest_torch():
    pythons = torch_pythons()
    found = {version: python for version, python in pythons.items() if not version.startswith("1.")}
    return [pytest.param(python, id=version) for version, python in found.items()][:1] or \
        [pytest.param(None, marks=pytest.mark.skip(reason="no Python with torch 2: `make torch-venv' makes one"))]


@pytest.mark.parametrize("names, more", [(COLLECTIVES, {}), (MESSAGES, {}), (PARALLEL, {"GPU_TESTS_ON_CPU": "1"})],
                         ids=["collectives", "messages", "ddp"])
@pytest.mark.parametrize("python", newest_torch())
def test_torchs_own_tests(python, names, more):
    done = subprocess.run([python, PACKAGE_PROGRAMS / "torch_suite.py", *names], capture_output=True, text=True, timeout=280,
                          env={**os.environ, **ENVIRONMENT, "WORLD_SIZE": "2", **more})
    found = re.fullmatch(r"(\d+) passed, 0 failed, 0 skipped", done.stdout.strip().splitlines()[-1]) if done.stdout else None
    assert done.returncode == 0 and found and int(found[1]) >= len(names), f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
