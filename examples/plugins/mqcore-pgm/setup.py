"""The extension; every other fact is in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(ext_modules=cythonize(
    [Extension("mqcore_pgm_engine", ["mqcore_pgm_engine.pyx"], language="c++",
               include_dirs=["."], libraries=["dl"],
               depends=["mqcore_pgm_library.h", "mqcore_pgm_open.pxi"],
               extra_compile_args=["-std=c++20", "-fvisibility=hidden"])],
    compiler_directives={"language_level": 3, "freethreading_compatible": True}))
