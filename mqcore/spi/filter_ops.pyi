class NativeFilter:
    """A filter's state on its way to an engine: see filter_ops.pxd."""
