"""The program in transports/README.md is run, so that it stays true."""

import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mqcore.spi.registry import STREAM

README = Path(__file__).parents[3] / "transports" / "README.md"


def test_the_smallest_transport_works(opts, closing):
    code = re.search(r"```python\n(.*?)```", README.read_text(), re.S).group(1)
    scope = {}
    exec(code, scope)
    transport = scope["transport"]
    assert all(hasattr(transport, name) for name in STREAM)
    name = f"mq-readme-{id(scope)}"
    transport.check(name, "bind")
    listening = closing(transport.listen(name, opts))
    target, = transport.resolve(name, opts)
    near = closing(transport.connect(target, opts))
    assert select.select([], [near], [], 10)[1] and transport.finish(near) == 0
    far = closing(listening.sockets[0].accept()[0])
    assert transport.names(far) == ("", "") and transport.pid(far) is None
    near.send(b"hello")
    assert far.recv(9) == b"hello"


def test_tls_in_five_minutes(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is not here")
    text = README.read_text().partition("## TLS in five minutes")[2].partition("\n## ")[0]
    commands = re.search(r"```sh\n(.*?)```", text, re.S).group(1)
    subprocess.run(["sh", "-e"], input=commands, text=True, cwd=tmp_path, check=True,
                   capture_output=True)
    program = "".join(re.findall(r"```python\n(.*?)```", text, re.S))
    answer = subprocess.run([sys.executable, "-c", program], text=True, cwd=tmp_path, check=True,
                            capture_output=True)
    first, second = answer.stdout.splitlines()
    assert first == "b'secret'" and "'alice'" in second
