"""Libraries in C that take the place of calls of the system in a child (LD_PRELOAD)."""

import shlex
import subprocess
import sysconfig


def shared_library(source, made):
    """Compile a file of C, or the text of one, into the library `made`; its path as a str."""
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    text = source if isinstance(source, str) else source.read_text()
    subprocess.run([*compiler, "-xc", "-", "-shared", "-fPIC", "-o", made, "-ldl"], input=text,
                   text=True, check=True)
    return str(made)
