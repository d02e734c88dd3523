"""The gradient engine's tuner on real ranks: it settles, all ranks alike, it remembers, and it can be switched off."""
import pytest

from launcher_support import compiled
from runtime_process_test import said

PLACES = [2, "h0:1,h1:1", "h0:2,h1:1"]


@pytest.fixture(scope="module")
def tuned():
    return compiled("tests/programs/gradients_tuned.c")


def with_cache(cache, *more):
    return ["-x", f"AIACC_TUNE_CACHE={cache}", *more]


@pytest.mark.parametrize("where", PLACES)
def test_it_settles_and_a_later_job_knows_it(launch, tuned, tmp_path, where):
    cache = tmp_path / "deep" / "tune"
    code, _, err = launch(where, *with_cache(cache, "-x", "AIACC_LOG=collective=info"), tuned, "settles").finish()
    assert code == 0, err
    assert err.count("the tuner has settled after") == 1, err
    lines = cache.read_text().splitlines()
    assert lines[0] == "aiacc-tune 1" and len(lines) == 2, lines
    code, out, err = launch(where, *with_cache(cache), tuned, "remembers").finish()
    assert (code, out, said(err)) == (0, "", ""), err


@pytest.mark.parametrize("where", PLACES)
def test_it_settles_while_a_rank_departs_from_the_schedule(launch, tuned, where):
    code, out, err = launch(where, *with_cache("none"), tuned, "departs").finish()
    assert (code, out, said(err)) == (0, "", ""), err


def test_a_file_that_is_not_whole_is_ignored_with_a_sentence(launch, tuned, tmp_path):
    cache = tmp_path / "tune"
    cache.write_text("aiacc-tune 1\n0123 4 nonsense\n")
    code, _, err = launch(2, *with_cache(cache), tuned, "settles").finish()
    assert code == 0, err
    assert err.count("is not a file of the tuner, or not whole: it is ignored") == 1, err
    assert cache.read_text().startswith("aiacc-tune 1\n") and "nonsense" not in cache.read_text()


def test_it_can_be_switched_off(launch, tuned):
    code, out, err = launch(2, "-x", "AIACC_TUNE=1", tuned, "off").finish()
    assert (code, out, said(err)) == (0, "", ""), err


def test_ranks_that_differ_are_told(launch, tuned):
    code, _, err = launch(2, tuned, "differs").finish()
    assert code != 0 and "equal settings of fusion, tuning, schedule and NaN check" in err, err
