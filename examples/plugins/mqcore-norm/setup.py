"""The extension; every other fact is in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(ext_modules=cythonize(
    [Extension("mqcore_norm_engine", ["mqcore_norm_engine.pyx"], language="c++",
               include_dirs=["."],
               extra_compile_args=["-std=c++20", "-fvisibility=hidden"])],
    compiler_directives={"language_level": 3, "freethreading_compatible": True}))
