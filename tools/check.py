"""Can this machine build mqcore? Silent if so; else one plain sentence on stderr, exit status 1.

Run by `make` with the system's python3 before anything is built, so the syntax here is that of very
old interpreters: a Python 3.6 must reach the sentence that says it is too old.
"""

import os
import platform
import subprocess
import sys
import sysconfig
import tempfile

OLDEST = (3, 11)
PROBE = """#include <Python.h>
#include <atomic>
#include <bit>
int main() { std::atomic<int> a{0}; return a.load() + std::popcount(0u); }
"""


def version():
    return "%d.%d" % sys.version_info[:2]


def compiler():
    """What setuptools will call for C++, first word only."""
    for command in (os.environ.get("CXX"), sysconfig.get_config_var("CXX"), "g++", "c++"):
        if command:
            yield command.split()


def answers(command):
    try:
        with open(os.devnull, "w") as nowhere:
            return subprocess.call(command + ["--version"], stdout=nowhere, stderr=nowhere) == 0
    except OSError:
        return False


def compiles(command, include):
    folder = tempfile.mkdtemp()
    source = os.path.join(folder, "probe.cpp")
    try:
        with open(source, "w") as f:
            f.write(PROBE)
        with open(os.devnull, "w") as nowhere:
            return subprocess.call(
                command + ["-std=c++20", "-fsyntax-only", "-I" + include, source],
                stdout=nowhere, stderr=nowhere) == 0
    finally:
        if os.path.exists(source):
            os.remove(source)
        os.rmdir(folder)


def problem():
    """The sentence, or None."""
    if sys.version_info[:2] < OLDEST:
        return ("mqcore needs Python 3.11 or newer and %s is Python %s: install one "
                "(Debian, Ubuntu: apt-get install python3 python3-venv python3-dev; or pyenv "
                "install 3.11), or name it with make PYTHON=/path/to/python3.11."
                % (sys.executable, version()))
    if platform.system() != "Linux":
        return "mqcore runs on Linux so far, and this is %s." % platform.system()
    have = {}
    for name in ("venv", "ensurepip", "pip"):
        try:
            __import__(name)
            have[name] = True
        except ImportError:
            have[name] = False
    if not have["venv"] or not (have["ensurepip"] or have["pip"]):
        return ("Python %s cannot make virtual environments: install its venv module "
                "(Debian, Ubuntu: apt-get install python%s-venv)." % (version(), version()))
    include = sysconfig.get_paths()["include"]
    if not os.path.exists(os.path.join(include, "Python.h")):
        return ("the headers of Python %s are missing (no Python.h in %s): install them (Debian, "
                "Ubuntu: apt-get install python%s-dev; Fedora: dnf install python3-devel)."
                % (version(), include, version()))
    found = [command for command in compiler() if answers(command)]
    if not found:
        return ("no C++ compiler was found: install one (Debian, Ubuntu: apt-get install g++; "
                "Fedora: dnf install gcc-c++), or name it in the environment variable CXX.")
    if not compiles(found[0], include):
        return ("the C++ compiler %s cannot compile C++20 against Python %s: install GCC 10 or "
                "newer with its C++ library (Debian, Ubuntu: apt-get install g++)."
                % (found[0][0], version()))
    return None


if __name__ == "__main__":
    sentence = problem()
    if sentence:
        sys.exit(sentence)
