"""Memory limits that no system call reports: a job that has no room is refused with both numbers, and a rank that the kernel
kills for memory is told apart from one that somebody killed."""
import contextlib
import pathlib
import time
import uuid

import pytest

from launcher_support import Job, closing_line

LIMIT = 64 << 20
HOG = "import time; data = bytearray(256 << 20); time.sleep(1000)"


@pytest.fixture
def group():
    """A control group with LIMIT bytes of memory, of either version."""
    for folder, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        path = pathlib.Path(folder, f"aiacc-test-{uuid.uuid4().hex[:8]}")
        with contextlib.suppress(OSError):
            path.mkdir()
            if (path / file).exists():
                (path / file).write_text(str(LIMIT))
                with contextlib.suppress(OSError):
                    (path / "memory.swap.max").write_text("0")
                break
            path.rmdir()
    else:
        pytest.skip("no control group for memory can be made here")
    yield path
    for _ in range(100):
        with contextlib.suppress(OSError):
            path.rmdir()
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} is still in use: {(path / 'cgroup.procs').read_text()}")


def inside(group, *arguments):
    return Job(arguments, before=["sh", "-c", f'echo $$ >{group}/cgroup.procs; exec "$@"', "sh"])


def test_a_rank_that_the_kernel_killed_for_memory(group):
    code, _, err = inside(group, "-np", 2, "sh", "-c", f'[ $RANK = 1 ] && exec python3 -c "{HOG}"; exec sleep 1000').finish()
    assert code == 137
    assert "rank 1 on host" in closing_line(err) and "memory limit" in closing_line(err) and "AR-RANK-MEMORY" in err


def test_a_rank_that_somebody_killed(group):
    code, _, err = inside(group, "-np", 2, "sh", "-c", "[ $RANK = 1 ] && kill -9 $$; exec sleep 1000").finish()
    assert code == 137
    assert "killed by signal 9" in closing_line(err) and "AR-RANK-SIGNAL" in err


def test_too_little_room_for_the_ranks_is_refused_with_both_numbers(group):
    code, out, err = inside(group, "-np", 64, "true").finish()
    assert (code, out) == (2, "")
    line = closing_line(err)
    assert "AR-MEMORY" in line and "64 ranks" in line and line.count("iB") >= 2, line


