"""Runs one launcher of a benchmark and leaves none of its ranks behind, however it ends."""
import os
import signal
import subprocess


def finish(command, limit):
    """(exit code, stdout, stderr) of `command`, or None if it took longer than `limit` seconds."""
    process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    try:
        out, err = process.communicate(timeout=limit)
        return process.returncode, out, err
    except BaseException as error:
        process.terminate()  # every launcher here ends its ranks on TERM; on KILL not all do
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return None
