"""The program in transports/README.md is run, so that it stays true."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[3] / "transports" / "README.md"


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
