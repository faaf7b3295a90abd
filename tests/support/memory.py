"""Whether memory stays flat while a test feeds something."""

import tracemalloc

FED = 8000      # by growth()


def growth(feed):
    """Bytes that are kept after feed(5000), once 3,000 before them have filled what has a bound."""
    feed(2000)
    tracemalloc.start()
    try:
        feed(1000)
        first = tracemalloc.get_traced_memory()[0]
        feed(5000)
        grown = tracemalloc.get_traced_memory()[0] - first
    finally:
        tracemalloc.stop()
    return grown
