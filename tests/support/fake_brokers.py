"""Just enough of NATS (core, and a stream that acknowledges) and of MQTT 3.1.1 (QoS 1) to test the
bridges' sides without a broker: what they send, and what they repeat after a lost connection."""

import asyncio
import contextlib
import json
import struct


class Fake:
    """`lose`: the connection ends after so many messages were stored, before the last of them is
    acknowledged; one number for each time."""

    def __init__(self, lose=()):
        self.lose = list(lose)
        self.stored = []            # bodies
        self.connections = 0
        self.writers = set()

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for writer in list(self.writers):
            writer.close()
        while self.writers:
            await asyncio.sleep(0.005)

    async def serve(self, reader, writer):
        self.connections += 1
        self.writers.add(writer)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await self.talk(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self.writers.discard(writer)

    def keep(self, body):
        """Whether the connection goes on."""
        self.stored.append(body)
        if self.lose and len(self.stored) >= self.lose[0]:
            self.lose.pop(0)
            return False
        return True


class FakeNats(Fake):
    """`full`: so many messages are refused by the stream before it takes the rest."""

    def __init__(self, lose=(), full=0):
        super().__init__(lose)
        self.full = full
        self.headers = []
        self.ids = {}               # what the stream has, by Nats-Msg-Id

    async def talk(self, reader, writer):
        told = {"server_id": "fake", "version": "2.9.0", "headers": True, "max_payload": 1000,
                "proto": 1, "host": "127.0.0.1", "port": self.port}
        writer.write(b"INFO %s\r\n" % json.dumps(told).encode())
        inboxes = {}
        while line := (await reader.readline()).split():
            if line[0] == b"PING":
                writer.write(b"PONG\r\n")
            elif line[0] == b"SUB":
                inboxes[line[1].removesuffix(b"*")] = line[-1]
            elif line[0] in (b"PUB", b"HPUB"):
                whole = await reader.readexactly(int(line[-1]) + 2)
                head = int(line[-2]) if line[0] == b"HPUB" else 0
                if not self.take(line, inboxes, whole[:head], whole[head:-2], writer):
                    return

    def take(self, line, inboxes, head, body, writer):
        reply = line[2] if len(line) == (5 if head else 4) else b""
        sid = next((n for prefix, n in inboxes.items() if reply.startswith(prefix)), None)
        if reply and self.full:
            self.full -= 1
            return self.answer(writer, reply, sid, {"error": {
                "code": 503, "err_code": 10077, "description": "maximum messages exceeded"}})
        self.headers.append(head)
        name = head.partition(b"Nats-Msg-Id: ")[2].partition(b"\r\n")[0]
        self.ids.setdefault(name, body)
        if not self.keep(body):
            return False
        return not reply or self.answer(writer, reply, sid, {"stream": "S",
                                                             "seq": len(self.stored)})

    def answer(self, writer, reply, sid, told):
        text = json.dumps(told).encode()
        writer.write(b"MSG %s %s %d\r\n%s\r\n" % (reply, sid, len(text), text))
        return True


CONNECT, PUBLISH, PUBACK, SUBSCRIBE, PINGREQ = 1, 3, 4, 8, 12


class FakeMqtt(Fake):
    """`feed`: bodies for its subscriber, again from the first unacknowledged one after each
    connection. `acknowledged`: those that came back, in order."""

    def __init__(self, lose=(), feed=(), lose_acks=()):
        super().__init__(lose)
        self.left = list(feed)
        self.acknowledged = []
        self.lose_acks = list(lose_acks)

    async def talk(self, reader, writer):
        while True:
            kind, = await reader.readexactly(1)
            length = shift = 0
            while True:
                byte, = await reader.readexactly(1)
                length |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            if not self.take(kind, await reader.readexactly(length), writer):
                return

    def take(self, kind, packet, writer):
        if kind >> 4 == CONNECT:
            writer.write(bytes([0x20, 2, 0, 0]))
        elif kind >> 4 == SUBSCRIBE:
            writer.write(bytes([0x90, 3]) + packet[:2] + b"\1")
            for number, body in enumerate(self.left, 1):
                flags = 0x3A if self.connections > 1 else 0x32      # DUP
                writer.write(bytes([flags, 5 + len(body)]) + b"\0\1t"
                             + struct.pack(">H", number) + body)
            self.waiting = dict(enumerate(self.left, 1))
        elif kind >> 4 == PUBLISH:
            topic = struct.unpack(">H", packet[:2])[0]
            number, body = packet[2 + topic:4 + topic], packet[4 + topic:]
            if not self.keep(body):
                return False
            writer.write(bytes([0x40, 2]) + number)
        elif kind >> 4 == PUBACK:
            body = self.waiting.pop(struct.unpack(">H", packet)[0])
            if self.lose_acks and len(self.acknowledged) >= self.lose_acks[0]:
                self.lose_acks.pop(0)
                return False
            self.acknowledged.append(body)
            self.left.remove(body)
        elif kind >> 4 == PINGREQ:
            writer.write(bytes([0xD0, 0]))
        else:
            return False
        return True


class FakeStomp(Fake):
    """`feed`: bodies for its subscriber, again from the first unacknowledged one after each
    connection, with ids that stay. `lose_acks`: the connection ends at these acknowledgments,
    counted from 1. `bad`: bodies that it answers with ERROR. `silent`: it answers nothing."""

    def __init__(self, lose=(), feed=(), lose_acks=(), bad=(), silent=False):
        super().__init__(lose)
        self.left = list(feed)
        self.lose_acks, self.bad, self.silent = list(lose_acks), bad, silent
        self.acks = 0

    async def talk(self, reader, writer):
        while True:
            head = await reader.readuntil(b"\n\n")
            command, *rows = head.strip().decode().split("\n")
            headers = dict(row.split(":", 1) for row in reversed(rows))
            length = headers.get("content-length")
            body = await reader.readexactly(int(length)) if length else b""
            await reader.readuntil(b"\0")
            if not self.silent and not self.take(command, headers, body, writer):
                return

    def take(self, command, headers, body, writer):
        if command == "STOMP":
            writer.write(b"CONNECTED\nversion:1.2\n\n\0\n")
            return True
        if command == "SUBSCRIBE":
            self.given = list(self.left)
            writer.writelines(
                b"MESSAGE\nmessage-id:ID:%b\nack:%d\ndestination:/queue/q\nsubscription:1\n"
                b"content-length:%d\n\n%b\0\n" % (one, n, len(one), one)
                for n, one in enumerate(self.given))
        elif command == "ACK":
            self.acks += 1
            if self.acks in self.lose_acks:
                return False
            done = self.given[:int(headers["id"]) + 1]
            self.left = [one for one in self.left if one not in done]
        elif command == "SEND":
            if body in self.bad:
                writer.write(b"ERROR\nmessage:malformed\nreceipt-id:%b\n\nbad\0\n"
                             % headers["receipt"].encode())
                return False
            if not self.keep(body):
                return False
        if "receipt" in headers:
            writer.write(b"RECEIPT\nreceipt-id:%b\n\n\0\n" % headers["receipt"].encode())
        return command != "DISCONNECT"
