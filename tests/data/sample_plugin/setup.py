"""A plug-in of somebody else: its extension compiles against the installed mqcore."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(ext_modules=cythonize([
    Extension("sample_blackhole", ["sample_blackhole.pyx"], language="c++",
              extra_compile_args=["-std=c++20"])]))
