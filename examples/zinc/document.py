"""A text that many edit at once: a replicated growable array (RGA), without I/O.

Each character has an id, `COUNTER + ORIGIN` as 16 hex digits, and hangs on the character that it
was typed behind. Of several behind the same one, the one with the larger id comes first. So all
copies that have had the same edits show the same text, in whatever order the edits came.

An edit is a JSON object. `o` is the endpoint that made it, `n` its number there, from 1:

    {"o": "1f00a2c3", "n": 7, "at": ID, "left": ID or "", "text": "abc"}     typed behind `left`
    {"o": "1f00a2c3", "n": 8, "gone": [ID, ...]}                             deleted

`vector` says how many edits of each origin a copy has had. Edits of one origin apply in order.
"""

import hashlib

LOG = 2000          # edits that a copy keeps; a copy that lacks older ones gets the whole document
HELD = 10_000       # edits that wait for earlier ones


def ids_of(first, count):
    """The ids of `count` characters that were typed in one go."""
    counter, origin = int(first[:8], 16), first[8:]
    return [f"{counter + i:08x}{origin}" for i in range(count)]


class Document:
    def __init__(self, origin):
        self.origin = origin        # 8 hex digits
        self.counter = 0            # the largest of any id
        self.vector = {}
        self.log = []               # edits, the oldest first
        self.held = {}              # (origin, number): an edit that came too early
        self.left = {}              # id: of the character that it was typed behind
        self.char = {}              # id: the character, None once it is deleted
        self.next = {"": ""}        # id: of the next character; "" is the beginning, and the end
        self.applied = self.echoes = self.repeated = self.dropped = 0

    # -- looking -----------------------------------------------------------------------------------

    def ids(self, deleted=False):
        at = self.next[""]
        while at:
            if deleted or self.char[at] is not None:
                yield at
            at = self.next[at]

    def text(self):
        return "".join(self.char[at] for at in self.ids())

    def digest(self):
        """The same for all copies that have had the same edits."""
        state = [[at, self.left[at], self.char[at]] for at in self.ids(deleted=True)]
        return hashlib.sha256(repr((state, sorted(self.vector.items()))).encode()).hexdigest()

    # -- editing -----------------------------------------------------------------------------------

    def insert(self, position, text):
        """Type `text` at that position of what is visible. Returns the edit."""
        shown = list(self.ids())
        left = shown[position - 1] if position else ""
        return self._edit({"at": f"{self.counter + 1:08x}{self.origin}", "left": left,
                           "text": text})

    def delete(self, position, count):
        return self._edit({"gone": list(self.ids())[position:position + count]})

    def _edit(self, change):
        edit = {"o": self.origin, "n": self.vector.get(self.origin, 0) + 1, **change}
        self._apply(edit)
        return edit

    # -- edits of others ---------------------------------------------------------------------------

    def offer(self, edits):
        """Edits came. Returns those that are new and have been applied, in order. What comes too
        early waits. What this copy has made itself is an echo, and counts as one."""
        done = []
        for edit in edits:
            name = edit["o"], edit["n"]
            if edit["n"] <= self.vector.get(edit["o"], 0) or name in self.held:
                if edit["o"] == self.origin:
                    self.echoes += 1
                else:
                    self.repeated += 1
            elif self._fits(edit):
                self._apply(edit)
                done.append(edit)
            elif len(self.held) >= HELD:
                self.dropped += 1           # it will be asked for again
            else:
                self.held[name] = edit
        ready = True
        while ready:
            ready = [name for name, edit in self.held.items() if self._fits(edit)]
            for name in ready:
                edit = self.held.pop(name)
                self._apply(edit)
                done.append(edit)
        return done

    def _fits(self, edit):
        """Whether all that this edit rests on is here."""
        return edit["n"] == self.vector.get(edit["o"], 0) + 1 and (
            all(at in self.char for at in edit["gone"]) if "gone" in edit
            else not edit["left"] or edit["left"] in self.char)

    def _apply(self, edit):
        if "gone" in edit:
            for at in edit["gone"]:
                self.char[at] = None
        else:
            left = edit["left"]
            for at, char in zip(ids_of(edit["at"], len(edit["text"])), edit["text"], strict=True):
                self._put(at, left, char)
                left = at
        self.vector[edit["o"]] = edit["n"]
        self.applied += 1
        self.log.append(edit)
        if len(self.log) > 2 * LOG:
            del self.log[:LOG]

    def _put(self, at, left, char):
        if at in self.char:
            return
        before = left
        while self.next[before] > at:       # "" is smaller than every id
            before = self.next[before]
        self.next[at], self.next[before] = self.next[before], at
        self.left[at], self.char[at] = left, char
        self.counter = max(self.counter, int(at[:8], 16))

    # -- catching up -------------------------------------------------------------------------------

    def lacks(self, vector):
        """Whether this copy lacks edits that a copy with this vector has."""
        return any(number > self.vector.get(origin, 0) for origin, number in vector.items())

    def since(self, vector):
        """What a copy with this vector lacks: {"edits": [...]}, or the whole document, {"state":
        [...], "vector": {...}}, if the log does not go back so far."""
        edits = [edit for edit in self.log if edit["n"] > vector.get(edit["o"], 0)]
        lacking = sum(max(0, number - vector.get(origin, 0))
                      for origin, number in self.vector.items())
        if len(edits) == lacking:
            return {"edits": edits}
        return {"state": [[at, self.left[at], self.char[at]] for at in self.ids(deleted=True)],
                "vector": self.vector}

    def merge(self, state, vector):
        """Take over a whole document. What this copy has beyond it stays."""
        for at, left, char in state:
            if at not in self.char:
                self._put(at, left, char)
            elif char is None:
                self.char[at] = None
        for origin, number in vector.items():
            if number > self.vector.get(origin, 0):
                self.vector[origin] = number
                self.log = [edit for edit in self.log if edit["o"] != origin]
        self.held = {name: edit for name, edit in self.held.items()
                     if edit["n"] > self.vector.get(edit["o"], 0)}
        return self.offer([])
