"""The lowest PySpark that mqcore[spark] allows; the other files run with the one that is installed.

It has 400 MB, so nothing here fetches it. Once for a checkout:

    pip install --target .venv-oldest-pyspark pyspark==4.0.0

MQCORE_PYSPARK names another folder. Where there is none, the test is skipped, and says so.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

from mqcore.spark.needs import OLDEST  # noqa: E402

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = Path(os.environ.get("MQCORE_PYSPARK", ROOT / ".venv-oldest-pyspark"))
# schemas and options; a batch and a stream each way; what Spark does not document
TESTS = ["test_options.py", *(f"test_spark.py::{name}" for name in (
    "test_batch_has_all_columns", "test_a_stream_without_limits_goes_on_where_it_stopped",
    "test_what_an_older_pyspark_lacks_is_refused",
    "test_a_stream_into_a_journal_is_there_once", "test_a_batch_into_a_journal_and_back"))]


@pytest.mark.skipif(not (FOLDER / "pyspark").is_dir(), reason=f"pip install --target {FOLDER.name} "
                    f"pyspark=={OLDEST}.0, or MQCORE_PYSPARK=where it is")
@pytest.mark.usefixtures("java_flags")
@pytest.mark.timeout(300)
def test_the_lowest_pyspark():
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(FOLDER), str(ROOT), environment.get("PYTHONPATH", "")])

    def run(*command):
        done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, done.stdout[-5000:]
        return done.stdout
    assert run("-c", "import pyspark; print(pyspark.__version__)").startswith(OLDEST)
    print(run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
              *(str(HERE / name) for name in TESTS)))
