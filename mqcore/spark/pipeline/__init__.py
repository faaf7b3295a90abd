"""The data pipeline: a feed over sockets, journalled, read by Structured Streaming, reported.

    python -m mqcore.spark.pipeline --help

Every step is a module that can be used alone; README.md beside this file is the guide.
"""
