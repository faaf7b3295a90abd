"""What must be installed for Spark, and what to say if it is not."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from mqcore.errors import NotSupported

OLDEST = "4.0"      # the first version with data sources in Python


def need_pyspark() -> None:
    """Raises NotSupported without pyspark, pyarrow, or with a pyspark that is too old."""
    for name in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise NotSupported(f"mqcore.spark needs the package {name}",
                               hint="pip install mqcore[spark]")
    if importlib.util.find_spec("pyspark.sql.datasource") is None:
        from pyspark import __version__ as found

        raise NotSupported(f"PySpark {found} is too old: mqcore.spark needs {OLDEST} or later",
                           hint="pip install -U mqcore[spark]") from None


def need_java() -> str:
    """The path of the java that Spark will start; NotSupported if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME={home} has none" if home else "there is none on the PATH"
        raise NotSupported(f"Spark needs Java 17 or later, and {where}",
                           hint="on Debian: apt-get install openjdk-17-jre-headless")
    return found
