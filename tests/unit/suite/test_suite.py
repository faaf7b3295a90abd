"""What `make test` runs, tools/suite.py: what fails once more is red, luck and deaths are told."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from nested import LIGHT

ROOT = Path(__file__).resolve().parents[3]
TOOL = ROOT / "tools" / "suite.py"
SUPPORT = ROOT / "tests" / "support"
ONCE = '''
    import os, pathlib, signal

    def first(name):
        """Whether this is the first call of that name, in whichever process."""
        try:
            (pathlib.Path(__file__).parent / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
'''
QUIET = "".join(f"def test_{n}(): pass\n" for n in range(4))


@pytest.fixture
def suite(tmp_path):
    """suite(test_a="...", ...) -> status, output, what build/unsteady.json says."""
    def run(*arguments, _workers=2, _ready=None, _env=(), **files):
        options = " ".join(["-p no:mqcore", *LIGHT])    # also of what is run once more
        (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {options}\n")
        count = ["-n", str(_workers)] if _workers else []
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(ONCE) + textwrap.dedent(text))
        done = subprocess.run(
            [sys.executable, TOOL, *count, *arguments, "."],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
            preexec_fn=_ready, env={**os.environ, **dict(_env)})
        report = tmp_path / "build" / "unsteady.json"
        return (done.returncode, done.stdout,
                json.loads(report.read_text()) if report.exists() else None)
    return run


def test_all_pass(suite):
    status, out, report = suite(_workers=None, test_a=QUIET, test_b=QUIET)
    assert (status, report) == (0, None)
    assert "8 passed" in out


def test_always_fails(suite):
    status, out, report = suite(test_a=QUIET, test_b="def test_wrong(): assert 1 == 2")
    assert status == 1
    assert report == {"unsteady": {}, "failed": ["test_b.py::test_wrong"]}
    assert out.rstrip().splitlines()[-2:] == ["FAILED twice: test_b.py::test_wrong",
                                              "4 passed, 1 failed, 0 skipped"]


def test_fails_once(suite):
    status, out, report = suite(
        test_a=QUIET, test_b="def test_luck(): assert not first('luck'), 'bad luck'")
    assert status == 0
    assert list(report["unsteady"]) == ["test_b.py::test_luck"] and report["failed"] == []
    assert "bad luck" in report["unsteady"]["test_b.py::test_luck"]
    assert "unsteady: test_b.py::test_luck\n    E   AssertionError: bad luck" in out
    assert out.endswith("5 passed, 0 failed, 0 skipped\n")


def test_what_fails_with_a_seed_is_run_again_with_it(suite):
    status, out, report = suite(
        conftest='''
            import os, random, pytest
            @pytest.fixture
            def seed():
                return int(os.environ.get("MQCORE_SEED") or random.SystemRandom().getrandbits(31))
        ''',
        test_a='''
            import pytest
            @pytest.fixture
            def told(seed, where):
                if where == "fixture":
                    print(f"MQCORE_SEED={seed}")
                return seed
            @pytest.mark.parametrize("where", ["fixture", "test", "error"])
            def test_chaos(told, where):
                if where == "test":
                    print(f"MQCORE_SEED={told - 1}")
                    print(f"MQCORE_SEED={told}")
                if first(where):
                    pathlib.Path(f"{where}.seed").write_text(str(told))
                seed = int(pathlib.Path(f"{where}.seed").read_text())
                assert told != seed, f"MQCORE_SEED={told}"
            def test_without():
                failed = first("without")
                assert not failed and not os.environ.get("MQCORE_SEED")
        ''', _env={"MQCORE_SEED": ""})
    assert status == 1 and report["failed"] == [
        f"test_a.py::test_chaos[{where}]" for where in ("fixture", "test", "error")], out


def test_strict(suite):
    status, out, report = suite(
        test_b="def test_luck(): assert not first('luck')", _env={"UNSTEADY": "0"})
    assert (status, report) == (1, None)
    assert "once more" not in out


def test_a_worker_dies(suite):
    """The test it ran counts as failed, the others of its file run elsewhere."""
    die = '''
        def test_before(): pass
        def test_death():
            if first(__name__):
                os.kill(os.getpid(), signal.{})
        def test_after(): pass
        def test_last(): pass
    '''
    status, out, report = suite(test_a=die.format("SIGKILL"), test_b=die.format("SIGSEGV"),
                                test_c=QUIET, test_d=QUIET)
    assert status == 0, out
    assert sorted(report["unsteady"]) == ["test_a.py::test_death", "test_b.py::test_death"]
    assert "crashed while running" in report["unsteady"]["test_a.py::test_death"]
    assert out.endswith("16 passed, 0 failed, 0 skipped\n")


def test_pytest_itself_fails(suite):
    """It is a death of that worker, and not the end of the run."""
    fail = '''
        import os
        def pytest_runtest_makereport(item, call):
            if item.name == "test_death" and call.when == "call" and first("death"):
                raise SystemError("AST constructor recursion depth mismatch")
    '''
    status, out, report = suite(conftest=fail, test_b=QUIET, test_c=QUIET, test_a='''
        def test_before(): pass
        def test_death(): pass
        def test_after(): pass
    ''')
    assert status == 0, out
    assert list(report["unsteady"]) == ["test_a.py::test_death"]
    assert "pytest itself failed" in out and "recursion depth mismatch" in out
    assert out.endswith("11 passed, 0 failed, 0 skipped\n")


@pytest.mark.slow
def test_a_worker_dies_twice(suite):
    status, out, report = suite(test_a=QUIET, test_b="def test_death(): os.kill(os.getpid(), 9)")
    assert (status, report["failed"]) == (1, ["test_b.py::test_death"])


@pytest.mark.slow
@pytest.mark.parametrize("where", ["import", "finish"])
def test_a_worker_dies_outside_of_tests(suite, where):
    """It belongs to no test, so it is red."""
    die = """
        import os
        if os.environ.get("PYTEST_XDIST_WORKER") and first("death"):
            os._exit(7)
    """
    if where == "finish":
        die = """
        import os
        def pytest_sessionfinish():
            if os.environ.get("PYTEST_XDIST_WORKER") and first("death"):
                os._exit(7)
        """
    status, out, _ = suite(_workers=1, conftest=die, test_a=QUIET)
    assert status == 1 and "FAILED: 1 workers died while they ran no test" in out, out


@pytest.mark.slow
def test_more_luck_than_allowed(suite):
    status, out, report = suite(test_a='''
        import pytest
        @pytest.mark.parametrize("n", range(6))
        def test_luck(n): assert not first(f"luck{n}")
    ''')
    assert (status, len(report["unsteady"]), report["failed"]) == (1, 6, [])
    assert "6 unsteady tests are more than 5" in out


@pytest.mark.slow
def test_what_a_hang_disturbs_is_not_counted(suite):
    """One test leaves its worker in disorder, once; those behind it fail there, and pass alone."""
    status, out, report = suite(test_a='''
        import pytest
        DISORDER = []
        def test_hangs():
            if first("hang"):
                DISORDER.append(1)
                pytest.fail("Timeout (>300.0s) from pytest-timeout.")
        @pytest.mark.parametrize("n", range(6))
        def test_behind(n): assert not DISORDER
    ''', test_b=QUIET)
    assert status == 0, out
    assert "1 unsteady, 6 disturbed" in out and len(report["unsteady"]) == 7
    assert out.endswith("11 passed, 0 failed, 0 skipped\n")


def test_a_process_ends_after_the_limit_of_its_test():
    done = subprocess.run([sys.executable, "-c", textwrap.dedent("""
        import faulthandler, time, types, hangs
        faulthandler.dump_traceback_later(0.5, exit=True)       # as pytest does
        mark = types.SimpleNamespace(args=(400,))
        hangs.allow(types.SimpleNamespace(get_closest_marker=lambda name: mark))
        time.sleep(1)
        print("goes on")
    """)], cwd=SUPPORT, stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (0, "goes on\n")


@pytest.mark.slow
def test_a_file_that_cannot_be_read(suite):
    assert suite(test_a=QUIET, test_b="import no_such_module")[0] != 0


def test_the_environment_is_made(suite):
    """Signals that a shell ignores, a mask, a long TMPDIR and Python's variables do not come in."""
    def ready():
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        os.umask(0o077)

    status, out, _ = suite(_ready=ready, _env={
        "TMPDIR": f"/tmp/{'x' * 90}", "TZ": "Asia/Kolkata", "LC_ALL": "tr_TR.UTF-8",
        "PYTHONHASHSEED": "0", "PYTHONWARNINGS": "error"}, test_a='''
        import subprocess, sys, tempfile
        def test_here():
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            assert signal.getsignal(signal.SIGQUIT) == signal.SIG_DFL
            assert len(tempfile.gettempdir()) < 40
            assert os.environ["TZ"] == "UTC" and os.environ["LC_ALL"] == "C.UTF-8"
            assert not any(name.startswith("PYTHON") for name in os.environ)
        def test_mask():
            assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
            (pathlib.Path(__file__).parent / "made").touch()
            assert os.stat(pathlib.Path(__file__).parent / "made").st_mode & 0o777 == 0o644
        def test_a_child():
            program = "import signal; print(signal.getsignal(signal.SIGINT))"
            told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
            assert "default_int_handler" in told.stdout
    ''')
    assert status == 0, out
