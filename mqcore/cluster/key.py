"""The key of a cluster: the secrets that let a node in, and the nodes that are kept out.

A key is a text file. Lines that begin with # are comments, the first other line names the format:

    mqcore-cluster-key 1
    offer 5f3a9c01 2026-11-23T05:40:00Z 8d6f...64 hex digits...
    accept 77aa00bb 2026-10-01T00:00:00Z 01c2...64 hex digits...
    ban 9b1c...32 hex digits...

- `offer` is the secret with which this node begins a handshake. There is exactly one.
- `accept` is a further secret with which others may begin one: an older or a newer one.
- The 8 digits are the secret's id, computed from it: a slip of the pen is found when the file is
  read. The id may be shown. It does not help to guess the secret.
- `ban` is the id of a node that is refused though it holds the key.

Rotation without a pause takes three steps. After each, give the file to all nodes before the next:

    key = key.accepting_new()       # 1. every node accepts the new secret
    key = key.offering(key.newest)  # 2. every node offers it
    key = key.without(old)          # 3. no node accepts the old one

Nothing goes over the network under a secret itself. `derive` makes one key for each purpose with
HKDF (RFC 5869), so that none of them tells anything about another:

| purpose | what it protects |
|---|---|
| `link` | the pre-shared key of the links' Noise handshakes (`psks()`) |
| `gossip` | the datagrams of the membership protocol (`gossip_keys()`) |
| `beacon` | the beacon on the local network, a tag that says nothing to others (`beacon_keys()`) |
| `id` | the first 4 bytes are the secret's id |

Trust: a node with a secret can join until every node has dropped that secret. Inside, it can speak
for other nodes in gossip. A ban works against a node that keeps its identity. After a theft, rotate
the key.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, NoReturn

from mqcore.cluster.crypto import derive
from mqcore.cluster.errors import KeyFileError

FORMAT = "mqcore-cluster-key 1"
SECRET = 32             # bytes
NODE_ID = 16            # bytes
MAX_SECRETS = 8         # as many as a responder tries (noise.MAX_PSKS)
MAX_BANS = 4096
MAX_FILE = 1 << 20      # bytes
PURPOSES = ("link", "gossip", "beacon", "id")

_SECRET_LINE = re.compile(r"(offer|accept) ([0-9a-f]{8}) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) "
                          r"([0-9a-f]{64})")
_BAN_LINE = re.compile(r"ban ([0-9a-f]{32})")
_HEAD = """\
# The key of an mqcore cluster. A node with this file can join the cluster: keep it secret.
# offer: the secret this node begins with. accept: further secrets that others may begin with.
# ban: nodes that are kept out. Change this file with `mq cluster key`.
"""


def node_id(static_public: bytes) -> bytes:
    """The id of the node with that static public key (32 bytes): 16 bytes."""
    return hashlib.sha256(b"mqcore cluster node" + static_public).digest()[:NODE_ID]


def _checked_id(node: object) -> bytes:
    if not isinstance(node, bytes | bytearray | memoryview) or len(found := bytes(node)) != NODE_ID:
        raise ValueError(f"a node's id has {NODE_ID} bytes, which {node!r:.80} is not: of the text "
                         "in hex, bytes.fromhex(text)")
    return found


class Secret(NamedTuple):
    """One secret of a key. Its repr shows the id alone."""

    data: bytes
    created: str            # UTC, like 2026-11-23T05:40:00Z

    @property
    def id(self) -> str:
        """8 hex digits, which may be shown."""
        return derive(self.data, "mqcore cluster id", 4).hex()

    def derive(self, purpose: str) -> bytes:
        """32 bytes for one of `PURPOSES`."""
        if purpose not in PURPOSES:
            raise ValueError(f"no purpose {purpose!r}; there are {', '.join(PURPOSES)}")
        return derive(self.data, f"mqcore cluster {purpose}")

    def __repr__(self) -> str:
        return f"<Secret {self.id}, {self.created}>"

    def __str__(self) -> str:
        return repr(self)


class Key:
    """The key of a cluster. It does not change: the methods that change something return another.

    Two keys are equal if they have the same secrets in the same order and the same bans. Neither
    `repr` nor an error shows a secret, and a key cannot be pickled.
    """

    __slots__ = ("_banned", "_secrets")

    def __init__(self, secrets_: tuple[Secret, ...],
                 banned: frozenset[bytes] = frozenset()) -> None:
        """`Key.generate()` and `Key.load()` are the ways to a key. The first secret is offered."""
        if not 1 <= len(secrets_) <= MAX_SECRETS:
            raise ValueError(f"{len(secrets_)} secrets; a key has 1 to {MAX_SECRETS}")
        if len(banned) > MAX_BANS:
            raise ValueError(f"{len(banned)} banned nodes; a key has up to {MAX_BANS}: rotate the "
                             "key instead, and clear the list")
        if any(len(secret.data) != SECRET for secret in secrets_):
            raise ValueError(f"a secret must have {SECRET} bytes")
        if any(len(node) != NODE_ID for node in banned):
            raise ValueError(f"a node id must have {NODE_ID} bytes")
        if len({secret.id for secret in secrets_}) < len(secrets_):
            raise ValueError("two secrets of a key have the same id: leave one out")
        self._secrets = secrets_
        self._banned = banned

    # -- where keys come from ----------------------------------------------------------------------

    @classmethod
    def generate(cls) -> Key:
        """A new key with one random secret of 32 bytes."""
        return cls((_new_secret(),))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Key:
        """The key in that file. Raises KeyFileError, also where other users can read the file.

        Readable by the group is allowed: that is how orchestrators mount secrets.
        """
        where = os.fspath(path)
        try:
            with open(where, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                raw = file.read(MAX_FILE + 1)
        except OSError as error:
            raise KeyFileError(f"cannot read the key {where}: {error.strerror}", path=where,
                               ) from error
        if stat.S_ISREG(mode) and mode & (stat.S_IRWXO | stat.S_IWGRP):
            raise KeyFileError(f"the key {where} is open to other users (mode {mode & 0o777:o})",
                               hint=f"chmod 600 {where}; rotate the key if others may have it",
                               path=where)
        if len(raw) > MAX_FILE:
            raise KeyFileError(f"the key {where} has more than {MAX_FILE} bytes: this is no key",
                               path=where)
        return cls.parse(raw.decode("utf-8", "replace"), where)

    @classmethod
    def parse(cls, text: str, path: str = "<text>") -> Key:
        """The key in the text of a key file. Raises KeyFileError, which names the line."""
        offered: list[Secret] = []
        accepted: list[Secret] = []
        banned: set[bytes] = set()
        known = False
        for number, line in enumerate(text.splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            if not known:
                known = line == FORMAT
                if not known:
                    _refuse(path, number, f"the first line must be {FORMAT!r}")
            elif match := _SECRET_LINE.fullmatch(line):
                secret = Secret(bytes.fromhex(match[4]), match[3])
                if secret.id != match[2]:
                    _refuse(path, number, f"the secret does not belong to the id {match[2]}")
                (offered if match[1] == "offer" else accepted).append(secret)
            elif match := _BAN_LINE.fullmatch(line):
                banned.add(bytes.fromhex(match[1]))
            else:
                _refuse(path, number, "this is no line of a key: offer ID TIME SECRET, accept ID "
                                      "TIME SECRET or ban NODE")
        if len(offered) != 1:
            _refuse(path, 0, f"{len(offered)} lines say offer, one must")
        try:
            return cls((*offered, *accepted), frozenset(banned))
        except ValueError as error:
            _refuse(path, 0, str(error))

    # -- writing -----------------------------------------------------------------------------------

    def text(self) -> str:
        """The text of the key file, secrets included."""
        lines = [_HEAD + FORMAT]
        for secret in self._secrets:
            word = "accept" if secret is not self._secrets[0] else "offer"
            lines.append(f"{word} {secret.id} {secret.created} {secret.data.hex()}")
        lines += [f"ban {node.hex()}" for node in sorted(self._banned)]
        return "\n".join(lines) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file, readable by its owner alone (mode 0600), whole or not at all. A file
        that is there is replaced. Raises KeyFileError."""
        where = Path(path)
        temporary = ""
        try:
            handle, temporary = tempfile.mkstemp(prefix=f".{where.name}.", dir=where.parent)
            with open(handle, "w", encoding="utf-8") as file:     # mkstemp made it with mode 0600
                file.write(self.text())
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, where)
        except OSError as error:
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            raise KeyFileError(f"cannot write the key {where}: {error.strerror}",
                               hint="choose a folder that you may write to", path=str(where),
                               ) from error
        _sync_folder(where.parent)

    # -- what is in it -----------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The id of the secret that is offered: 8 hex digits, which may be shown."""
        return self._secrets[0].id

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The secret that is offered, then those that are accepted."""
        return self._secrets

    @property
    def newest(self) -> str:
        """The id of the secret that was made last."""
        return max(reversed(self._secrets), key=lambda secret: secret.created).id

    @property
    def banned(self) -> frozenset[bytes]:
        """Ids of the nodes that are kept out."""
        return self._banned

    def psks(self) -> list[bytes]:
        """The pre-shared keys of links. An initiator takes the first, a responder all of them."""
        return [secret.derive("link") for secret in self._secrets]

    def gossip_keys(self) -> list[bytes]:
        """The keys of gossip: seal with the first, open with any."""
        return [secret.derive("gossip") for secret in self._secrets]

    def beacon_keys(self) -> list[bytes]:
        """The keys of the beacon: send with the first, recognize any."""
        return [secret.derive("beacon") for secret in self._secrets]

    # -- other keys --------------------------------------------------------------------------------

    def accepting_new(self) -> Key:
        """With a new random secret, which is accepted and not yet offered."""
        return Key((*self._secrets, _new_secret()), self._banned)

    def offering(self, secret_id: str) -> Key:
        """With that secret offered; the one that was is still accepted."""
        chosen = self._find(secret_id)
        return Key((chosen, *(one for one in self._secrets if one is not chosen)), self._banned)

    def without(self, secret_id: str) -> Key:
        """Without that secret. The one that is offered cannot go."""
        chosen = self._find(secret_id)
        if chosen is self._secrets[0]:
            raise ValueError(f"the secret {secret_id} is offered: offer another one first")
        return Key(tuple(one for one in self._secrets if one is not chosen), self._banned)

    def banning(self, node: bytes) -> Key:
        """With the node kept out: its id, 16 bytes. Raises ValueError for anything else, and if
        4,096 nodes are banned already."""
        return Key(self._secrets, self._banned | {_checked_id(node)})

    def pardoning(self, node: bytes) -> Key:
        """With the node (16 bytes) let in again. Raises ValueError for what is no id."""
        return Key(self._secrets, self._banned - {_checked_id(node)})

    def _find(self, secret_id: str) -> Secret:
        for secret in self._secrets:
            if secret.id == secret_id:
                return secret
        raise ValueError(f"the key has no secret {secret_id}; it has "
                         f"{', '.join(secret.id for secret in self._secrets)}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Key):
            return NotImplemented
        return self._secrets == other._secrets and self._banned == other._banned

    def __hash__(self) -> int:
        return hash((self._secrets, self._banned))

    def __repr__(self) -> str:
        accepted = "".join(f", accepts {secret.id}" for secret in self._secrets[1:])
        banned = f", {len(self._banned)} banned" if self._banned else ""
        return f"<cluster.Key {self.id}{accepted}{banned}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a cluster key cannot be pickled: give the path of its file instead")


def _new_secret() -> Secret:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Secret(secrets.token_bytes(SECRET), now)


def _refuse(path: str, line: int, why: str) -> NoReturn:
    at = f"{path}:{line}" if line else path
    raise KeyFileError(f"{at}: {why}", path=path, line=line,
                       hint="take the file from another node, or make a new key for all nodes")


def _sync_folder(folder: Path) -> None:
    """Makes the rename durable, where folders can be synced."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass            # some network file systems refuse; the file itself is synced
    finally:
        os.close(handle)
