"""The bound that bench/gradients prints beside exposed communication, in numbers that follow from the line and the shapes."""
import math
import os
import pathlib
import sys

import pytest

FOLDER = pathlib.Path(os.environ["AIACC_SOURCE"]) / "bench/gradients"
if not FOLDER.is_dir():
    pytest.skip("not part of this build", allow_module_level=True)
sys.path.insert(0, str(FOLDER))
from bound import exposed_s, line_s  # noqa: E402
from shapes import MODELS  # noqa: E402

FRAMES = 1514 / 1448


@pytest.mark.parametrize("model, tensors, elements", [("resnet50", 161, 25557032), ("vgg16", 32, 138357544), ("bert", 199, 109482240)])
def test_shapes_are_those_of_the_models(model, tensors, elements):
    shapes = MODELS[model]()
    assert len(shapes) == tensors and sum(map(math.prod, shapes)) == elements


def test_a_host_sends_its_share_over_the_line():
    assert line_s(10**9 / 32, 2, "1gbit", 4) == pytest.approx(1.0 * FRAMES)
    assert line_s(10**9 / 32, 4, "10gbit", 4) == pytest.approx(0.15 * FRAMES)
    assert line_s(10**9 / 32, 2, "500mbit", 2) == pytest.approx(1.0 * FRAMES)


def test_without_computation_all_is_exposed():
    assert exposed_s("resnet50", 4, "1gbit", 4, 0.0) == pytest.approx(line_s(25557032, 4, "1gbit", 4))


def test_behind_a_long_pass_only_the_last_gradient_is_exposed():
    last = math.prod(MODELS["vgg16"]()[0])
    assert exposed_s("vgg16", 2, "1gbit", 4, 1000.0) == pytest.approx(line_s(last, 2, "1gbit", 4))


def test_a_line_that_is_slower_than_the_pass_works_from_the_first_gradients_on():
    # vgg16's first ones in the backward pass: a bias of 1,000, and 4,096,000 weights, until which the line waits.
    waits = 0.3 * 4097000 / 138357544
    expected = waits + line_s(138357544 - 1000, 2, "1gbit", 4) - 0.3
    assert exposed_s("vgg16", 2, "1gbit", 4, 0.3) == pytest.approx(expected)
