"""The first batch of a process loads NumPy: what happens where that fails, and afterwards."""

import subprocess
import sys
import textwrap

import pytest

BEGIN = """
import os, resource, sys
import mqcore as mq
from mqcore import journal
reader = journal.open(sys.argv[1])
assert "numpy" not in sys.modules
"""
CASES = {
    "descriptors": ("""
        held = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        try:
            while True:
                held.append(os.dup(1))
        except OSError:
            pass
        """, "OSError", "for fd in held: os.close(fd)"),
    "missing": ('sys.modules["numpy"] = None', "mq.NotSupported", 'del sys.modules["numpy"]'),
    "broken": ("""
        class Broken:
            def find_spec(self, name, path=None, target=None):
                if name == "numpy._core.numerictypes":
                    raise ImportError(name)
        sys.meta_path.insert(0, Broken())
        """, "mq.NotSupported", "del sys.meta_path[0]"),
}


@pytest.fixture
def folder(tmp_path):
    from mqcore import journal
    with journal.open(tmp_path / "j", "a") as writer:
        for number in range(10):
            writer.append(b"%d" % number)
        writer.commit()
    return tmp_path / "j"


def run(folder, program):
    done = subprocess.run([sys.executable, "-c", BEGIN + program, str(folder)], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("what", CASES)
def test_the_next_read_has_all_of_it(folder, what):
    harm, error, heal = CASES[what]
    program = textwrap.dedent(harm) + textwrap.dedent(f"""
        for _ in range(2):
            try:
                reader.read(0)
            except {error} as error:
                print(error)
            else:
                raise SystemExit("it was read")
        """) + heal + "\nassert reader.read(0).to_list() == [b'%d' % n for n in range(10)]\n"
    said = run(folder, program).splitlines()
    assert len(said) == 2
    if what != "descriptors":
        assert all("NumPy cannot be loaded" in line for line in said)


def test_numpy_is_not_begun_where_few_descriptors_are_left(folder):
    """Its module in C cannot be loaded twice: after a shortage in the middle, never again."""
    harm, _, heal = CASES["descriptors"]
    program = textwrap.dedent(harm) + textwrap.dedent("""
        for fd in held[:5]:
            os.close(fd)
        del held[:5]
        try:
            reader.read(0)
        except OSError as error:
            print(error)
        assert "numpy" not in sys.modules
        assert not any(name.startswith("numpy") for name in sys.modules)
        """) + heal + "\nassert len(reader.read(0)) == 10\n"
    assert "8 descriptors are free to load NumPy" in run(folder, program)
