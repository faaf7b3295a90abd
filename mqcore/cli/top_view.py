"""The screen of `mq top`: a table of sockets, or one socket with its peers. Only this draws."""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mqcore.cli.common import printable
from mqcore.cli.keyboard import keys
from mqcore.cli.top import HEADER, SORTS, cells, chosen, duration, number, place, reasons
from mqcore.monitor.rates import Rates

NUMBERS = {"pid", "#", "peers", "out/s", "in/s", "bytes/s", "queued", "out", "in", "rtt", "p99"}
ORDER = [*SORTS]
BLINK = 0.1         # seconds within which a key or a look is shown
HELP = "up/down select  Enter open  s sort  r reverse  / filter  space pause  q quit"
DETAIL_HELP = "Escape back  up/down scroll  space pause  q quit"
PEER_HEADER = ("peer", "address", "pattern", "pid", "out/s", "in/s", "bytes/s", "queued", "rtt",
               "drops")


class View:
    """What is shown, and what keys change. `look()` reads the monitors; `draw()` draws."""

    def __init__(self, client: Any, sort: str, words: str) -> None:
        self._client = client
        self._rates = Rates()
        self._detail_rates = Rates()
        self.sort, self.words = sort, words
        self.reverse = self.paused = self.typing = self.done = False
        self.hurry = False      # a look is wanted now
        self.selected: tuple[Any, ...] | None = None
        self.opened: tuple[Any, ...] | None = None
        self._scroll = 0
        self._rows: list[Any] = []
        self._detail: Any = None
        self._asked = False     # whether _detail is an answer
        self._at = 0.0

    def look(self) -> None:
        """The next look, unless it is paused. Another thread may press keys meanwhile."""
        if self.paused:
            return
        opened, rates = self.opened, self._detail_rates
        self._client.failure = ""
        self._rows = self._rates.update(self._client.snapshots(peers=False))
        self._at = time.time()
        if opened is not None:
            shots = [shot for shot in self._client.snapshots(socket=opened[3])
                     if shot.context.id == opened[2]]
            found = rates.update(shots)
            if opened == self.opened:
                self._detail, self._asked = found[0] if found else None, True

    # -- keys --------------------------------------------------------------------------------------

    def press(self, key: str) -> None:
        if self.typing:
            self._type(key)
        elif key == "q":
            self.done = True
        elif key == " ":
            self.paused = not self.paused
        elif self.opened is not None:
            self._press_in_detail(key)
        elif key in ("s", "S"):
            step = 1 if key == "s" else -1
            self.sort = ORDER[(ORDER.index(self.sort) + step) % len(ORDER)]
        elif key == "r":
            self.reverse = not self.reverse
        elif key == "/":
            self.typing = True
        elif key == "escape":
            self.words = ""
        elif key in ("enter", "up", "down", "k", "j", "page up", "page down"):
            self._move(key)

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.typing = False
            self.words = self.words if key == "enter" else ""
        elif key == "backspace":
            self.words = self.words[:-1]
        elif len(key) == 1 and len(self.words) < 100:
            self.words += key

    def _press_in_detail(self, key: str) -> None:
        if key == "escape":
            self.opened = self._detail = None
        elif key in ("up", "k"):
            self._scroll = max(0, self._scroll - 1)
        elif key in ("down", "j"):
            self._scroll += 1
        elif key in ("page up", "page down"):
            self._scroll = max(0, self._scroll + (10 if key == "page down" else -10))

    def _move(self, key: str) -> None:
        rows = chosen(self._rows, self.sort, self.words, self.reverse)
        if not rows:
            return
        places = [place(row) for row in rows]
        at = places.index(self.selected) if self.selected in places else 0
        if key == "enter":
            self._detail_rates = Rates()
            self._detail, self._asked = None, False
            self.opened, self._scroll, self.hurry = places[at], 0, True
            return
        step = {"up": -1, "k": -1, "page up": -10, "page down": 10}.get(key, 1)
        self.selected = places[max(0, min(len(places) - 1, at + step))]

    # -- drawing -----------------------------------------------------------------------------------

    def draw(self) -> Group:
        height = shutil.get_terminal_size().lines
        return self._draw_socket(height) if self.opened is not None else self._draw_list(height)

    def _status(self, text: str, hint: str) -> list[Text]:
        state = "  paused" if self.paused else ""
        lines = [Text(f"mq top  {time.strftime('%H:%M:%S', time.localtime(self._at))}  {text}"
                      f"{state}", style="bold")]
        if self._client.failure:
            lines.append(Text(printable(self._client.failure), style="yellow"))
        return [*lines, Text(hint, style="dim")]

    def _draw_list(self, height: int) -> Group:
        rows = chosen(self._rows, self.sort, self.words, self.reverse)
        places = [place(row) for row in rows]
        at = places.index(self.selected) if self.selected in places else 0
        space = max(1, height - 7)
        first = max(0, min(at - space // 2, len(rows) - space))
        table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False)
        for name in HEADER:
            table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True,
                             ratio=3 if name == "endpoint" else None)
        for index in range(first, min(first + space, len(rows))):
            table.add_row(*map(Text, cells(rows[index])),
                          style="reverse" if index == at else "")
        contexts = len({row.context for row in self._rows})
        status = (f"{len(rows)} of {len(self._rows)} sockets in {contexts} contexts"
                  f"  sort {self.sort}"
                  f"{' (reverse)' if self.reverse else ''}")
        if self.words or self.typing:
            status += f"  filter {printable(self.words)}{'_' if self.typing else ''}"
        parts: list[Any] = [*self._status(status, HELP), table]
        if not self._rows:
            parts.append(Text("No monitored program answers. Start one with MQCORE_MONITOR=1."))
        return Group(*parts)

    def _draw_socket(self, height: int) -> Group:
        row = self._detail
        if row is None:
            said = "this socket is closed, or its program does not answer" if self._asked else "..."
            return Group(*self._status(said, DETAIL_HELP))
        lines = [f"endpoints  {', '.join(map(printable, row.endpoints)) or '-'}",
                 f"sent {row.sent:,} ({number(row.out_rate)}/s)  received {row.received:,} "
                 f"({number(row.in_rate)}/s)  queued {row.queued_out:,} out, {row.queued_in:,} in",
                 f"high-water marks  send {row.send_hwm}  receive {row.recv_hwm}",
                 f"drops  {reasons(row.dropped)} ({number(row.drop_rate)}/s)",
                 f"reconnects {row.reconnects}  failed handshakes {row.failed_handshakes}"]
        lines += [f"latency  {printable(kind.replace('_', ' '))}: p50 {duration(one.p50)}, "
                  f"p99 {duration(one.p99)}" for kind, one in row.latencies.items()]
        lines += [f"error  {printable(error)}" for error in row.errors[:3]]
        space = max(1, height - len(lines) - 8)
        peers = sorted(row.peers, key=lambda peer: (-(peer.out_rate + peer.in_rate), peer.id))
        self._scroll = max(0, min(self._scroll, len(peers) - space))
        table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False)
        for name in PEER_HEADER:
            table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True,
                             ratio=3 if name == "address" else None)
        for peer in peers[self._scroll:self._scroll + space]:
            table.add_row(*map(Text, peer_cells(peer)))
        title = f"{printable(row.program)} {row.pid}  {printable(row.pattern)} {row.socket}"
        return Group(*self._status(f"{title}  {len(row.peers)} of {row.peers_connected} peers",
                                   DETAIL_HELP), *map(Text, lines), table)


def peer_cells(peer: Any) -> tuple[str, ...]:
    return (str(peer.id), printable(peer.address), printable(peer.pattern),
            str(peer.pid) if peer.pid is not None else "-", number(peer.out_rate),
            number(peer.in_rate), number(peer.bytes_out_rate + peer.bytes_in_rate),
            number(peer.queued_out + peer.queued_in),
            f"{peer.rtt * 1000:.1f} ms" if peer.rtt is not None else "-", reasons(peer.dropped))


class Looking:
    """Looks every `interval` seconds in a thread of its own, so that a program that does not answer
    holds up no key. `with` ends it, and closes the client."""

    def __init__(self, view: View, client: Any, interval: float) -> None:
        self._view, self._client, self._interval = view, client, interval
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._ending = False
        self._error: BaseException | None = None
        self._looks = 0
        self._thread = threading.Thread(target=self._run, name="mq-top", daemon=True)

    def __enter__(self) -> Looking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending = True
        self._wake.put(None)
        self._client.close()
        self._thread.join()

    def looks(self) -> int:
        """How many there were. Raises what has ended them."""
        if self._error is not None:
            raise self._error
        return self._looks

    def hurry(self) -> None:
        self._wake.put(None)

    def _run(self) -> None:
        try:
            while not self._ending:
                due = time.monotonic() + self._interval
                self._view.look()
                self._looks += 1
                with suppress(Empty):
                    self._wake.get(timeout=max(0.001, due - time.monotonic()))
        except BaseException as error:
            self._error = error


def watch(client: Any, interval: float, sort: str, words: str) -> None:
    """Draw until q, Ctrl-C or the end of the terminal."""
    view = View(client, sort, words)
    console = Console()
    drawn = 0       # looks that are on the screen; -1: draw again
    with keys() as pressed, Looking(view, client, interval) as looking, \
            Live(console=console, screen=True, auto_refresh=False) as live:
        while not view.done:
            if looking.looks() != drawn:
                drawn = looking.looks()
                live.update(view.draw(), refresh=True)
            for key in pressed.wait(BLINK):
                view.press(key)
                drawn = -1
            if view.hurry:
                view.hurry = False
                looking.hurry()
