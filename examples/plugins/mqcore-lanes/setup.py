"""The extension. Its cimports find mqcore's declarations where mqcore is installed."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(ext_modules=cythonize(
    [Extension("mqcore_lanes.lanes", ["src/mqcore_lanes/lanes.pyx"], language="c++",
               extra_compile_args=["-std=c++20", "-O2"])],
    compiler_directives={"language_level": 3, "freethreading_compatible": True}))
