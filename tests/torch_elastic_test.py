"""Horovod's elastic training: errors that a job survives, and those that it does not."""
import pytest

from launcher_hosts_support import ENTER, PRETEND, script
from launcher_support import Job
from python_support import ENVIRONMENT, SOURCE, check_job, each_torch, each_torch_with

QUIET = {"AIACC_LOG": "error"}


@pytest.mark.parametrize("python, ranks", each_torch_with(1, 3))
def test_elastic(python, ranks):
    check_job(python, ranks, "torch_elastic.py", env=QUIET)


def worlds(python, folder, *deaths, options=()):
    """(what each rank printed, in order; stderr)"""
    code, out, err = Job(["--quiet", "-np", 3, "--min-np", 2, "--max-np", 3, *options, python, SOURCE / "tests/programs/torch_elastic_worlds.py", folder,
                          *deaths], env={**ENVIRONMENT, **QUIET}).finish(timeout=200)
    assert code == 0, out + err
    return sorted(out.splitlines()), err


@pytest.mark.parametrize("python", each_torch())
def test_a_lost_rank_is_replaced_and_every_sample_counts_once(python, tmp_path):
    undisturbed, err = worlds(python, tmp_path)
    assert undisturbed[0].startswith("0 0 0 3 12 3 0.") and err == "", (undisturbed, err)
    result = undisturbed[0].split()[-1]
    for number, death in enumerate(("3:1:7", "5:0")):
        (tmp_path / str(number)).mkdir()
        found, err = worlds(python, tmp_path / str(number), death)
        who = int(death.split(":")[1])
        others = [one for one in range(3) if one != who]
        expected = [f"{who} 2 2 3 12 3 ", *(f"{other} {rank} {rank} 3 12 3 3 3 " for rank, other in enumerate(others))]
        assert found == sorted(one + result for one in expected), (found, undisturbed, err)
        assert err.count("a new rank is started in its place") == 1 and err.count("goes back to the last commit: ") == 2
        assert len(err.splitlines()) == 3, err


class Changing:
    """A job of Horovod's script whose hosts a test changes."""

    def __init__(self, python, folder, least, most, wanted, first):
        self.folder, self.hosts = folder, folder / "hosts"
        self.hosts.write_text(first)
        finds = script(f"finds-{folder.parent.name}-{folder.name}", f"exec cat {self.hosts}\n")
        self.job = Job(["--quiet", "--min-np", least, "--max-np", most, "--host-discovery-script", finds, "--provide", "horovod", *PRETEND, ENTER,
                        python, SOURCE / "tests/programs/torch_elastic_grows.py", folder, wanted], env={**ENVIRONMENT, **QUIET})

    def change(self, began, hosts):
        """Once that file is there, which a rank makes when it begins."""
        self.job.wait_for(lambda: (self.folder / began).exists(), f"rank and size {began}", timeout=150)
        new = self.hosts.with_suffix(".new")
        new.write_text(hosts)
        new.rename(self.hosts)

    def lines(self):
        code, out, err = self.job.finish(timeout=200)
        assert (code, err) == (0, ""), out + err
        return [line.split() for line in sorted(out.splitlines())]


@pytest.mark.parametrize("python", each_torch())
def test_ranks_of_a_host_that_vanishes_leave_in_order(python, tmp_path):
    """Rank 0 is one of them; the others have the state, and are told by no broadcast."""
    job = Changing(python, tmp_path, 2, 3, 2, "a:1\nb:2\n")
    job.change("0.3", "b:2\n")
    lines = job.lines()
    step, weights = lines[0][2], lines[0][-1]
    assert lines == [["1", "0", step, "3", "2", "True", weights], ["2", "1", step, "3", "2", "True", weights]]


@pytest.mark.parametrize("python", each_torch())
def test_a_script_of_horovod_grows(python, tmp_path):
    """From 2 ranks to 3 on a host that is found, and to 4 on one that gets a slot; each sample counts once an epoch."""
    job = Changing(python, tmp_path, 2, 4, 4, "a:2\n")
    job.change("0.2", "a:2\nb:1\n")
    job.change("0.3", "a:2\nb:2\n")
    lines = job.lines()
    step, weights = lines[0][2], lines[0][-1]
    assert lines == [["0", "0", step, "2", "3", "4", "True", weights], ["1", "1", step, "2", "3", "4", "True", weights],
                     ["2", "2", step, "3", "4", "True", weights], ["3", "3", step, "4", "True", weights]]
