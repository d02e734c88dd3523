"""AIACC_METRICS: what Prometheus sees of each rank."""
import contextlib
import socket
import subprocess
import sys

import pytest

from launcher_support import compiled
from runtime_process_test import said

ASKING = r"""
import http.client, socket, sys, time
port = int(sys.argv[1])
def asked(method, target):
    while True:  # there is no server before aiacc_init
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request(method, target)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            time.sleep(0.05)
text = ""
while "aiacc_gradient_fused_bytes" not in text:  # there is none before the engine
    text = asked("GET", "/metrics")[1]
print(text, asked("POST", "/metrics")[0], asked("GET", "/other")[0])
with socket.create_connection(("127.0.0.1", port)) as raw:
    raw.sendall(b"nonsense\r\n\r\n")
    print(raw.recv(100).split(b"\r\n")[0].decode())
"""


@pytest.fixture(scope="module")
def gradients():
    return compiled("tests/programs/gradients.c")


@pytest.fixture
def port():
    """The first of two of this test's own: bound and not listening, so that the system gives them to nobody else meanwhile."""
    with contextlib.ExitStack() as keepers:
        def keep(port):
            keeper = keepers.enter_context(socket.socket())
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            keeper.bind(("0.0.0.0", port))
            return keeper.getsockname()[1]
        while True:
            first = keep(0)
            with contextlib.suppress(OSError, OverflowError):
                keep(first + 1)
                break
        yield first


def test_each_rank_answers_at_its_own_port(launch, gradients, tmp_path, port):
    tmp_path.chmod(0o777)
    over = tmp_path / "over"
    job = launch(2, gradients, "stay", over, env={"AIACC_METRICS": str(port)})
    try:
        texts = [subprocess.run([sys.executable, "-c", ASKING, str(port + rank)], capture_output=True, text=True, timeout=60) for rank in range(2)]
    finally:
        over.touch()
        code, _, err = job.finish()
    assert code == 0, err
    for rank, asked in enumerate(texts):
        assert f'aiacc_gradient_bytes_total{{rank="{rank}",host="' in asked.stdout, asked
        assert "# TYPE aiacc_gradient_fused_bytes histogram" in asked.stdout and ' 405 404\nHTTP/1.1 400 Bad Request' in asked.stdout, asked


def test_a_file_for_each_rank_has_the_last_numbers(launch, gradients, tmp_path):
    tmp_path.chmod(0o777)
    code, _, err = launch(2, gradients, "steady", env={"AIACC_METRICS": str(tmp_path / "aiacc.prom")}).finish()
    assert (code, said(err)) == (0, ""), err
    for rank in range(2):
        lines = (tmp_path / f"aiacc.{rank}.prom").read_text().splitlines()
        numbers = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        reduced = next(float(number) for name, number in numbers.items() if name.startswith("aiacc_gradient_tensors_total"))
        # 24 tensors a step: 40 steps, and those until a schedule was recorded.
        assert reduced % 24 == 0 and 24 * 41 <= reduced <= 24 * 90, numbers


@pytest.mark.parametrize("setting, why", [("/nowhere/file", "cannot write to /nowhere/file.0"), ("127.0.0.1:x", "AIACC_METRICS")])
def test_what_cannot_be_is_one_line_and_the_job_goes_on(launch, gradients, setting, why):
    code, _, err = launch(1, gradients, "order", env={"AIACC_METRICS": setting}).finish()
    assert code == 0 and err.count("there will be no metrics (AIACC_METRICS): ") == 1 and why in err, err
