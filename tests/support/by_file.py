"""xdist's scheduler that gives each worker a whole file at a time, made to outlive workers. Where
the files of a folder share something that takes long to start, it gives the whole folder; where a
single test takes minutes, that test.

That of xdist 3.8 assigns work to the replacement of a dead worker before that has collected its
tests, and never tells a replacement with one last test that no more will come.
"""

from typing import Any

import longest
from xdist.scheduler import LoadFileScheduling

TOGETHER = "tests/spark/"   # one Java
SINGLY = tuple(f"tests/{name}::" for name in longest.SINGLY)


class ByFile(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(SINGLY):
            return nodeid
        return TOGETHER if nodeid.startswith(TOGETHER) else super()._split_scope(nodeid)

    def remove_node(self, node: Any) -> Any:
        """Returns the test that the worker ran as it died; what else it had is for the others."""
        rest = self.assigned_work.pop(node)
        self.registered_collections.pop(node, None)
        died_in = next((test for tests in rest.values() for test, done in tests.items()
                        if not done), None)
        for name, tests in reversed(rest.items()):
            left = {test: False for test, done in tests.items() if not done and test != died_in}
            if left:
                self.workqueue[name] = left
                self.workqueue.move_to_end(name, last=False)
        for other in self.nodes:
            self._reschedule(other)
        return died_in

    @property
    def collection_is_completed(self) -> bool:
        return self.collection is not None or super().collection_is_completed

    def _reschedule(self, node: Any) -> None:
        if node.shutting_down or node not in self.registered_collections:
            return
        while self.workqueue and self._pending_of(self.assigned_work[node]) <= 2:
            self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()     # after what it has
