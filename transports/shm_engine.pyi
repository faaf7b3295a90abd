from mqcore.spi.message_engine import NativeEngine

RING_LEAST: int
RING_MOST: int

def map_size(ring: int) -> int: ...
def attach(memory: int, ring: int, connected: bool, wake: int, peer: int,
           spin: int = 0) -> NativeEngine: ...
