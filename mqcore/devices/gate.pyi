from collections.abc import Callable

class Gate:
    def __init__(self, ask: Callable[[int, bytes], bool]) -> None: ...
