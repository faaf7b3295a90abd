from typing import Any

class PollEntry:
    @property
    def index(self) -> int: ...
    @property
    def wanted(self) -> Any: ...
