"""A folder for PYTHONPATH: what it holds is called zmq."""
