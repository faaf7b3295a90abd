class NativeEngine:
    """A message engine's state on its way to the host: see message_engine.pxd."""
