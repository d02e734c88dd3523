"""The 16-bit wire of the gradient engine, and its check for gradients that are not finite, on real ranks."""
import re

import pytest

from launcher_support import compiled
from runtime_process_test import said

PLACES = [1, 2, 3, "h0:1,h1:1", "h0:2,h1:1,h2:2"]


@pytest.fixture(scope="module")
def program():
    return compiled("tests/programs/gradients_wire.c")


@pytest.mark.parametrize("mode", ["exact", "fp16", "bf16", "mixed", "nan", "nan-fp16", "nan-bf16", "nan-mixed"])
@pytest.mark.parametrize("where", PLACES)
def test_gradients_wire(launch, program, where, mode):
    code, _, err = launch(where, program, mode).finish()
    assert (code, said(err)) == (0, ""), err


@pytest.mark.parametrize("mode", ["fp16", "bf16"])
def test_gradients_have_the_same_error_on_two_and_sixteen_ranks(launch, program, mode):
    errors = []
    for ranks in (2, 16):
        code, out, err = launch(ranks, "--oversubscribe", program, mode).finish()
        assert code == 0, err
        errors.append(float(out))
    assert errors[1] < 1.3 * errors[0], errors


@pytest.mark.parametrize("where", [2, "h0:1,h1:1"])
def test_different_wires_of_gradients_are_told_on_every_rank(launch, program, where):
    code, _, err = launch(where, program, "mismatch").finish()
    assert code == 0, err
    sentences = re.findall(r"^rank \d: wait: mismatch: (.*)", err, re.M)
    assert len(sentences) == 2, err
    for sentence in sentences:
        assert "'layer 0'" in sentence and "40000 fp32, sum, wire fp16" in sentence and "rank 1" in sentence, err


@pytest.mark.parametrize("setting, where, low, high", [
    ("fp32", 2, 100, 100), ("fp16", 2, 50, 56), ("bf16", 2, 50, 50), ("mixed", 2, 100, 100), ("mixed", "h0:1,h1:1", 50, 55), ("mixed", "h0:2,h1:2", 50, 55)])
def test_gradients_travel_as_the_setting_says(launch, program, setting, where, low, high):
    code, out, err = launch(where, "-x", f"AIACC_ALLREDUCE_DTYPE={setting}", program, "setting").finish()
    assert code == 0, err
    assert low <= int(out) <= high
