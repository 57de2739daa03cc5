"""A server of the harness in a process of its own, which may be killed or stopped. It ends with the test.

python -m tests.serving.server.process KIND TCP_PORT
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tests.serving.server.harness import serving


@dataclass
class Apart:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    http: int
    tcp: int


@contextlib.contextmanager
def serving_apart(kind: str, tcp_port: int = 0) -> Iterator[Apart]:
    """Serve a policy of this kind, see `tests.serving.server.harness.load`, until the body ends or the server dies."""
    command = [sys.executable, "-m", "tests.serving.server.process", kind, str(tcp_port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Apart(process, *json.loads(process.stdout.readline()))
        finally:
            process.kill()


if __name__ == "__main__":
    with serving(sys.argv[1], tcp_port=int(sys.argv[2])) as server:
        print(json.dumps([server.http, server.tcp]), flush=True)
        # Until the test's process is gone, however it ended.
        sys.stdin.read()
