"""llama.cpp's server over a GGUF file, as a process: prints its address, and ends when its input does.

``python peer_process.py FILE``. Needs the package `xllamacpp` (`make peers`).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

PATIENCE_S = 600  # this file is run as it is, without the helpers of the other tests


def serve(path: str) -> None:
    """Runs the server until standard input ends."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_parallel = 2  # n = 2 needs two slots
    params.n_ctx = 2 * 2048
    # One thread that does not spin: the machine has others to run.
    params.cpuparams.n_threads = 1
    params.cpuparams.poll = 0
    params.warmup = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


@contextmanager
def llama_cpp(path: str, log: Path) -> Iterator[str]:
    """The address of such a process, once its model is loaded."""
    command = [sys.executable, __file__, path]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            assert url, log.read_text()[-2000:]
            while httpx.get(f"{url}/health", timeout=PATIENCE_S).status_code != 200:
                assert process.poll() is None, log.read_text()[-2000:]
                time.sleep(0.1)
            yield url
        finally:
            process.stdin.close()
            process.wait(PATIENCE_S)


if __name__ == "__main__":
    serve(sys.argv[1])
