"""The process that runs libnorm for one endpoint: python -IS mqcore_norm_process.py FD SETTINGS

libnorm 1.5 ends its process, takes any amount of memory, or runs for ever, on some forged packets.
So it never runs in the process of the application. This one exchanges pieces of streams with it
through FD, a Unix socket (SOCK_SEQPACKET), and mqcore_norm_engine.pyx in the application makes
messages of them. If libnorm ends the process, or is stuck, a new one takes its place under the same
name; what was lost by it shows in the numbers of the messages. It ends with the other end of FD.

Packets to a sender: PIECE or BEGIN, 8 bytes (how many bytes of pieces there are with this one), a
piece of the stream. To a receiver: SEEK, node (4 bytes): that source's next piece shall be a BEGIN.
From here: one byte, and what belongs to it:

    OPEN      it has begun
    FAILED    why it cannot begin, in UTF-8; the last packet
    PIECE     node (4 bytes), a piece of that source's stream
    BEGIN     the same; a message begins with it, and what came before may be incomplete
    FLUSHED   8 bytes: all known receivers have the pieces up to here
    AGAIN     a new process has taken over: what it has not sent of a message will never come

Numbers are big-endian. Only the standard library is imported, so that it starts quickly.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time

OPEN, FAILED, PIECE, BEGIN, FLUSHED, AGAIN, SEEK = b"O", b"F", b"P", b"B", b"A", b"R", b"S"
PACKET = 32 << 10       # bytes of a packet at most
FRONT = 9               # of it before the piece, when it comes here
TURN = 64               # packets until the other side has its turn
PATIENCE = 5.0          # seconds without an answer, beside sending, until a receiver has left
LONGEST = 60.0          # seconds for what an application that has ended leaves
NEVER = float("inf")
QUIET = 0.02            # seconds without anything to send, after which receivers are asked
GRTT, GRTT_MOST = 0.01, 1.0     # seconds that packets take, until libnorm has measured it; at most
BLOCK, PARITY = 48, 16  # packets of a block, and for its repair
HEADERS = 60            # bytes of IP, UDP and NORM in front of a packet's data
SOURCES = 256           # that have a buffer each; with more, all of them begin anew
MEMORY = 1 << 30        # bytes of addresses, beside four windows of a sender
RECEIVING = 6 << 30     # the same of a receiver: libnorm takes three windows of each source
SIGN, STUCK = 1.0, 15   # seconds between two signs of libnorm's life; until it counts as stuck
SOON, LATE = 0.05, 2.0  # seconds until the next process, when they end again and again
LIBRARIES = "libnorm.so.1", "libnorm.so"
NODE_NONE, NODE_ANY = 0, 0xffffffff
(QUEUE_VACANCY, QUEUE_EMPTY, FLUSH_COMPLETED, WATERMARK_COMPLETED, SENDER_NEW, OBJECT_NEW,
 OBJECT_UPDATED, OBJECT_COMPLETED, OBJECT_ABORTED, RECEIVER_NEW, USER_TIMEOUT) = (
    1, 2, 3, 4, 10, 17, 19, 20, 21, 26, 28)
ACK_FAILURE, ACK_SUCCESS = 1, 3
ACTIVE, PASSIVE, TRACK_RECEIVERS, SYNC_CURRENT, STREAM = 2, 1, 1, 0, 3


class Event(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("session", ctypes.c_void_p), ("sender", ctypes.c_void_p),
                ("object", ctypes.c_void_p))


HANDLE, INT, UINT, BOOL = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_bool
SHORT, TEXT, REAL, BYTE = ctypes.c_uint16, ctypes.c_char_p, ctypes.c_double, ctypes.c_ubyte
# of normApi.h: (result, arguments)
CALLS = {
    "NormCreateInstance": (HANDLE, BOOL), "NormGetDescriptor": (INT, HANDLE),
    "NormGetNextEvent": (BOOL, HANDLE, ctypes.POINTER(Event), BOOL),
    "NormCreateSession": (HANDLE, HANDLE, TEXT, SHORT, UINT),
    "NormSetUserTimer": (None, HANDLE, REAL),
    "NormSetRxPortReuse": (None, HANDLE, BOOL, TEXT, TEXT, SHORT),
    "NormSetMulticastInterface": (BOOL, HANDLE, TEXT), "NormSetTTL": (BOOL, HANDLE, BYTE),
    "NormSetMulticastLoopback": (BOOL, HANDLE, BOOL), "NormSetTxRate": (None, HANDLE, REAL),
    "NormGetTxRate": (REAL, HANDLE), "NormSetTxRateBounds": (None, HANDLE, REAL, REAL),
    "NormSetCongestionControl": (None, HANDLE, BOOL, BOOL),
    "NormSetGrttEstimate": (None, HANDLE, REAL), "NormSetGrttMax": (None, HANDLE, REAL),
    "NormSetAutoParity": (None, HANDLE, BYTE), "NormSetAutoAckingNodes": (None, HANDLE, INT),
    "NormAddAckingNode": (BOOL, HANDLE, UINT), "NormRemoveAckingNode": (None, HANDLE, UINT),
    "NormGetNextAckingNode": (BOOL, HANDLE, ctypes.POINTER(UINT), ctypes.POINTER(INT)),
    "NormGetAckingStatus": (INT, HANDLE, UINT),
    "NormStartSender": (BOOL, HANDLE, SHORT, UINT, SHORT, SHORT, SHORT, BYTE),
    "NormSetTxSocketBuffer": (BOOL, HANDLE, UINT), "NormGetRandomSessionId": (SHORT,),
    "NormStreamOpen": (HANDLE, HANDLE, UINT, TEXT, UINT),
    "NormStreamSetPushEnable": (None, HANDLE, BOOL),
    "NormStreamWrite": (UINT, HANDLE, HANDLE, UINT), "NormStreamMarkEom": (None, HANDLE),
    "NormStreamFlush": (None, HANDLE, BOOL, INT), "NormSetWatermark": (BOOL, HANDLE, HANDLE, BOOL),
    "NormSetDefaultSyncPolicy": (None, HANDLE, INT), "NormStartReceiver": (BOOL, HANDLE, UINT),
    "NormSetRxSocketBuffer": (BOOL, HANDLE, UINT), "NormStreamSeekMsgStart": (BOOL, HANDLE),
    "NormStreamRead": (BOOL, HANDLE, HANDLE, ctypes.POINTER(UINT)),
    "NormObjectGetType": (INT, HANDLE), "NormObjectGetSender": (HANDLE, HANDLE),
    "NormNodeGetId": (UINT, HANDLE), "NormObjectCancel": (None, HANDLE),
}


class Failed(Exception):
    """It cannot begin; the text says why."""


def library():
    """Failed."""
    why = ""
    for name in LIBRARIES:
        try:
            found = ctypes.CDLL(name)
            for call, (result, *arguments) in CALLS.items():
                made = getattr(found, call)
                made.restype, made.argtypes = result, arguments
            return found
        except (OSError, AttributeError) as error:
            why = why or str(error)
    raise Failed(why)


class Gone(Exception):
    """The application has closed its end."""


class Endpoint:
    """One session of libnorm, that sends or receives."""

    def __init__(self, sock, settings, norm):
        self.sock, self.settings, self.norm = sock, settings, norm
        self.instance = norm.NormCreateInstance(False)
        if not self.instance:
            raise Failed("libnorm does not start")
        self.fd = norm.NormGetDescriptor(self.instance)
        self.session = norm.NormCreateSession(self.instance, settings["group"].encode(),
                                              settings["port"], settings["node"])
        if not self.session:
            raise Failed("libnorm refuses the group")
        norm.NormSetRxPortReuse(self.session, True, None, None, 0)
        norm.NormSetMulticastInterface(self.session, settings["interface"].encode())
        norm.NormSetTTL(self.session, settings["hops"])
        norm.NormSetMulticastLoopback(self.session, settings["loop"])
        self.event = Event()
        self.poller = select.poll()
        self.poller.register(self.fd, select.POLLIN)
        self.space = select.poll()
        self.space.register(sock, select.POLLOUT)
        signal.alarm(STUCK)         # ends this process, unless it is set again
        self.begin()                # which may get stuck, too
        norm.NormSetUserTimer(self.session, SIGN)

    def events(self):
        """What libnorm tells, as (type, object)."""
        event = self.event
        while self.norm.NormGetNextEvent(self.instance, event, False):
            if event.type == USER_TIMEOUT:
                signal.alarm(STUCK)
                self.norm.NormSetUserTimer(self.session, SIGN)
            else:
                yield event.type, event.object

    def wait(self, seconds):
        """The descriptors that are ready."""
        return dict(self.poller.poll(None if seconds is None else max(0, seconds) * 1000))

    def put(self, packet):
        """Wait until the application takes it. Gone."""
        while True:
            try:
                self.sock.send(packet, socket.MSG_NOSIGNAL)
                return
            except BlockingIOError:
                self.space.poll(SIGN * 1000)
                signal.alarm(STUCK)
            except OSError:
                raise Gone from None


class Sender(Endpoint):
    def begin(self):
        norm, session, settings = self.norm, self.session, self.settings
        rate = settings["rate"] * 1000.0
        norm.NormSetTxRate(session, min(rate, 1e6) if settings["congestion"] else rate)
        norm.NormSetTxRateBounds(session, -1.0, rate)
        norm.NormSetCongestionControl(session, settings["congestion"], True)
        norm.NormSetGrttMax(session, GRTT_MOST)
        norm.NormSetGrttEstimate(session, GRTT)
        norm.NormSetAutoAckingNodes(session, TRACK_RECEIVERS)
        if not norm.NormStartSender(session, norm.NormGetRandomSessionId(), settings["window"],
                                    settings["mtu"] - HEADERS, BLOCK, PARITY, 0):
            raise Failed("libnorm cannot send to the group at this interface")
        norm.NormSetAutoParity(session, min(settings["parity"], PARITY))
        if settings["send_buffer"]:
            norm.NormSetTxSocketBuffer(session, settings["send_buffer"])
        self.stream = norm.NormStreamOpen(session, settings["window"], None, 0)
        if not self.stream:
            raise Failed("libnorm opens no stream")
        norm.NormStreamSetPushEnable(self.stream, False)
        self.packet = ctypes.create_string_buffer(PACKET)
        self.at = self.size = 0         # the piece in `packet` that libnorm has not taken
        self.given = self.whole = 0     # bytes of pieces, with this one; with the last whole one
        self.written = 0                # bytes of the stream
        self.asked = None               # (given, written) when receivers were asked
        self.at_rest = False            # how they were
        self.sends_until = 0.0          # when libnorm has last sent something
        self.quiet_at = NEVER           # when to ask, unless more comes
        self.late_at = NEVER            # when not to wait for answers any more
        self.end_at = NEVER             # when to end, also if receivers lack something
        self.ended = False              # everything from the application is here
        self.acked = 0                  # bytes of the stream that all known receivers have
        self.joined = not settings["again"]     # a whole message comes next, or the rest of one
        self.poller.register(self.sock, select.POLLIN)

    def run(self):
        while not self.ended or self.acked < self.written and time.monotonic() < self.end_at:
            full = self.at < self.size
            if self.end_at == NEVER:
                self.poller.modify(self.sock, 0 if full else select.POLLIN)
            due = min(self.quiet_at, self.late_at, self.end_at)
            ready = self.wait(None if due == NEVER else due - time.monotonic())
            if self.fd in ready:
                self.listen()
            if ready.get(self.sock.fileno(), 0) & select.POLLHUP:
                self.end()
            if (full or not self.ended) and self.move():
                self.quiet_at = time.monotonic() + QUIET
            if self.asked is not None and time.monotonic() >= self.late_at:
                self.late()
            if time.monotonic() >= self.quiet_at and self.at == self.size:
                self.quiet_at = NEVER
                self.ask(at_rest=True)
        raise Gone

    def end(self):
        """The application has closed its end, or was killed: what it has sent still goes out."""
        if self.end_at == NEVER:
            self.end_at = time.monotonic() + LONGEST
            self.poller.unregister(self.sock)

    def listen(self):
        for kind, _ in self.events():
            if kind in (QUEUE_VACANCY, QUEUE_EMPTY):
                self.sends_until = time.monotonic()
            if self.asked is None:
                continue
            if kind == RECEIVER_NEW:        # it was not asked
                self.ask(self.at_rest)
            elif kind in (WATERMARK_COMPLETED, FLUSH_COMPLETED):
                status = self.norm.NormGetAckingStatus(self.session, NODE_ANY)
                if status in (ACK_FAILURE, ACK_SUCCESS):
                    self.answered(lacking=status == ACK_FAILURE)

    def late(self):
        """Receivers do not answer. While libnorm still sends, more slowly than it said, it is not
        they who are late."""
        now = time.monotonic()
        if self.sends_until > now - PATIENCE:
            self.late_at = now + PATIENCE
        else:
            self.answered(lacking=True)

    def answered(self, lacking):
        if lacking:
            self.forget()
        given, self.acked = self.asked
        self.asked, self.late_at = None, NEVER
        if self.end_at == NEVER:
            self.put(FLUSHED + struct.pack("!Q", given))

    def forget(self):
        """The receivers that have not answered have left."""
        node, status = ctypes.c_uint(), ctypes.c_int()
        missing = []
        while self.norm.NormGetNextAckingNode(self.session, node, status):
            if status.value != ACK_SUCCESS and node.value != NODE_NONE:
                missing.append(node.value)
        for one in missing:
            self.norm.NormRemoveAckingNode(self.session, one)

    def move(self):
        """Packets into the stream, as many as there is space for. Whether any of it got there."""
        before = self.written
        for _ in range(TURN):
            if self.at == self.size and not self.take():
                break
            if not self.write():
                return self.written > before
        if self.written > before:       # a flush of nothing would wake this process again
            self.norm.NormStreamFlush(self.stream, False, PASSIVE)
        return self.written > before

    def take(self):
        """The next packet, if there is one."""
        try:
            self.size = self.sock.recv_into(self.packet)
        except BlockingIOError:
            return False
        except ConnectionError:
            self.size = 0
        if not self.size:
            self.at, self.ended = 0, True
            self.end()
            return False
        kind, self.given = struct.unpack_from("!cQ", self.packet)
        self.at = FRONT
        if kind == BEGIN:
            self.norm.NormStreamMarkEom(self.stream)
            self.joined = True
        elif not self.joined:       # the rest of what the last process had begun with
            self.at, self.whole = self.size, self.given
            self.quiet_at = time.monotonic() + QUIET
        return True

    def write(self):
        """The packet into the stream. False: some of it must wait. Receivers that are known have a
        say: no more than half of the window is on the way to them."""
        window = self.settings["window"]
        if self.written - self.acked > window // 4 and (self.asked is None or self.at_rest):
            self.ask(at_rest=False)
        room = max(0, self.acked + window // 2 - self.written)
        done = self.norm.NormStreamWrite(self.stream, ctypes.addressof(self.packet) + self.at,
                                         min(room, self.size - self.at)) if room else 0
        self.at += done
        self.written += done
        if self.at < self.size:
            return False
        self.whole = self.given
        return True

    def ask(self, at_rest):
        """Receivers whether they have everything. At rest, also those who were not heard of yet may
        say what they lack."""
        norm = self.norm
        if at_rest:
            norm.NormAddAckingNode(self.session, NODE_NONE)
        else:
            norm.NormRemoveAckingNode(self.session, NODE_NONE)
        norm.NormStreamFlush(self.stream, False, ACTIVE if at_rest else PASSIVE)
        self.asked, self.at_rest = (self.whole, self.written), at_rest
        self.late_at = time.monotonic() + self.patience()
        norm.NormSetWatermark(self.session, self.stream, True)

    def patience(self):
        """Seconds in which what was written can leave, twice, and its receivers answer."""
        rate = max(self.norm.NormGetTxRate(self.session), 1.0)
        return PATIENCE + 2 * 8 * (self.written - self.acked) / rate


class Receiver(Endpoint):
    def begin(self):
        norm, session, settings = self.norm, self.session, self.settings
        norm.NormSetDefaultSyncPolicy(session, SYNC_CURRENT)
        if not norm.NormStartReceiver(session, settings["window"]):
            raise Failed("libnorm cannot join the group at this interface")
        norm.NormSetRxSocketBuffer(session, settings["recv_buffer"])
        self.piece = ctypes.create_string_buffer(PACKET)
        self.size = ctypes.c_uint()
        self.nodes = {}         # of each stream: the source's number, as bytes
        self.joined = set()     # streams that are read from the border of a message on
        self.ready = {}         # streams that may have something to read
        self.sources = 0
        self.poller.register(self.sock, select.POLLIN)

    def run(self):
        while True:
            ready = self.wait(0 if self.ready else None)
            if self.sock.fileno() in ready:
                self.seek()
            if self.fd in ready:
                for kind, stream in self.events():
                    self.note(kind, stream)
            for stream in list(filter(self.read, self.ready)):
                del self.ready[stream]

    def seek(self):
        """What the application asks for. Gone."""
        packet = self.sock.recv(PACKET)
        if not packet:
            raise Gone
        self.joined -= {stream for stream, node in self.nodes.items() if SEEK + node == packet}

    def note(self, kind, stream):
        norm = self.norm
        if kind == SENDER_NEW:
            self.sources += 1
            if self.sources > SOURCES:
                sys.exit(1)             # each has a window of memory: begin anew
        elif kind == OBJECT_NEW:
            if norm.NormObjectGetType(stream) != STREAM:
                norm.NormObjectCancel(stream)
                return
            node = norm.NormNodeGetId(norm.NormObjectGetSender(stream))
            self.joined.discard(stream)
            self.nodes[stream] = struct.pack("!I", node)
        elif kind == OBJECT_UPDATED and stream in self.nodes:
            self.ready[stream] = True
        elif kind in (OBJECT_ABORTED, OBJECT_COMPLETED):
            self.ready.pop(stream, None)
            self.nodes.pop(stream, None)
            self.joined.discard(stream)

    def read(self, stream):
        """Some of what is there. True: that was all."""
        norm, size, head = self.norm, self.size, PIECE
        for _ in range(TURN):
            if stream not in self.joined:
                if not norm.NormStreamSeekMsgStart(stream):
                    return True
                self.joined.add(stream)
                head = BEGIN
            size.value = PACKET - 8
            if not norm.NormStreamRead(stream, self.piece, size):
                self.joined.discard(stream)         # something of it is lost
                continue
            if not size.value:
                if head == BEGIN:
                    self.joined.discard(stream)
                return True
            self.put(head + self.nodes[stream] + ctypes.string_at(self.piece, size.value))
            head = PIECE
        return False


def work(sock, settings):
    """In a process of its own: its exit status."""
    where = Sender if settings["sends"] else Receiver
    limit = MEMORY + 4 * settings["window"] if settings["sends"] else RECEIVING
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        endpoint = where(sock, settings, library())
        endpoint.put(AGAIN if settings["again"] else OPEN)
        os.write(settings["opened"], b"1")
        endpoint.run()
    except Failed as error:
        fail(sock, str(error))
        return 3
    except (Gone, ConnectionError):
        return 0
    return 1


def fail(sock, text):
    with contextlib.suppress(OSError):
        sock.send(FAILED + text.encode())


def supervise(sock, settings):
    """One process after the other, as long as the application wants it."""
    pause = SOON
    opened, settings["opened"] = os.pipe2(os.O_NONBLOCK)
    application = select.poll()
    application.register(sock, select.POLLHUP)
    while True:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = work(sock, settings)
            finally:
                os._exit(status)
        status = ended(child)
        if status in (0, 3) or application.poll(0):
            return
        if not settings["again"]:
            try:
                os.read(opened, 1)
            except BlockingIOError:
                fail(sock, f"libnorm ended its process when it began (exit status {status})")
                return
        settings["again"] = True
        pause = SOON if time.monotonic() - began > 10 * LATE else min(2 * pause, LATE)
        time.sleep(pause)


def ended(child):
    """The exit status, or the signal below 0. One that is stopped is not waited for."""
    status = os.waitpid(child, os.WUNTRACED)[1]
    if os.WIFSTOPPED(status):
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status)


def main():
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.setblocking(False)
    settings = json.loads(sys.argv[2])
    if os.fork():               # nobody has to wait for it
        os._exit(0)
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)       # it ends with what the application still sends
    for number in (signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)       # whatever the application does with them
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with open(os.devnull, "r+b") as nowhere:        # and keeps no terminal or pipe open
        for fd in (0, 1, 2):
            os.dup2(nowhere.fileno(), fd)
    supervise(sock, settings)


if __name__ == "__main__":
    main()
