"""Cluster keys: files that a person can read, rotation, bans, and nothing that shows a secret."""

import hashlib
import os
import pickle
import traceback

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mqcore.cluster import key as keys
from mqcore.cluster.crypto import derive
from mqcore.cluster.errors import KeyFileError
from mqcore.cluster.key import Key, Secret, node_id
from mqcore.cluster.noise import Handshake, NoiseError

NODE = bytes(range(16))


def hidden(key, text):
    return not any(secret.data.hex() in text or repr(secret.data) in text
                   or secret.derive("link").hex() in text for secret in key.secrets)


def test_save_and_load(tmp_path):
    key = Key.generate().accepting_new().banning(NODE)
    path = tmp_path / "prod.key"
    key.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["prod.key"]
    assert Key.load(path) == key and hash(Key.load(str(path))) == hash(key)
    assert Key.parse(key.text()) == key
    key.offering(key.newest).save(path)         # replaces it
    assert Key.load(path).id == key.newest
    assert Key.generate() != key and key != 3


def test_a_person_can_read_it():
    key = Key.generate().banning(NODE)
    lines = [line for line in key.text().splitlines() if not line.startswith("#")]
    assert lines[0] == "mqcore-cluster-key 1"
    word, name, created, data = lines[1].split()
    assert (word, name) == ("offer", key.id) and created.endswith("Z") and len(data) == 64
    assert lines[2] == f"ban {NODE.hex()}"
    assert Key.parse("\n \n" + key.text().replace("\n", "  \r\n")) == key


def test_rotation_never_shuts_anybody_out():
    """In each step, nodes with the file of the step before and of this step let each other in."""
    first = Key.generate()
    second = first.accepting_new()
    third = second.offering(second.newest)
    last = third.without(first.id)
    assert last.id != first.id and len(last.secrets) == 1
    for old, new in ((first, second), (second, third), (third, last)):
        for mine, theirs in ((old, new), (new, old), (new, new)):
            opener = Handshake(True, mine.psks()[0])
            Handshake(False, theirs.psks()).read_message(opener.write_message())
    with pytest.raises(NoiseError):
        Handshake(False, last.psks()).read_message(Handshake(True, first.psks()[0]).write_message())


def test_what_cannot_be():
    key = Key.generate()
    with pytest.raises(ValueError, match="is offered"):
        key.without(key.id)
    with pytest.raises(ValueError, match=f"no secret 00000000; it has {key.id}"):
        key.offering("00000000")
    for _ in range(7):
        key = key.accepting_new()
    with pytest.raises(ValueError, match="1 to 8"):
        key.accepting_new()
    with pytest.raises(ValueError, match="up to 4096"):
        Key(key.secrets, frozenset(n.to_bytes(16, "big") for n in range(4097)))
    with pytest.raises(ValueError, match="same id"):
        Key((key.secrets[0], key.secrets[0]))
    with pytest.raises(ValueError, match="no purpose"):
        key.secrets[0].derive("lunch")


def test_bans():
    key = Key.generate()
    assert key.banning(NODE).banned == {NODE}
    assert key.banning(NODE).pardoning(NODE) == key
    assert key.banning(memoryview(bytearray(NODE))).pardoning(bytearray(NODE)) == key


@pytest.mark.parametrize("node", [b"short", bytes(17), b"", NODE.hex(), 16, 0, [1] * 16, range(16),
                                  None, "x" * 1000])
@pytest.mark.parametrize("call", [Key.banning, Key.pardoning])
def test_what_is_no_nodes_id(call, node):
    """bytes() would make something of some of them."""
    with pytest.raises(ValueError, match="16 bytes") as raised:
        call(Key.generate(), node)
    assert len(str(raised.value)) < 300


def test_derived_keys_are_hkdf_and_differ():
    key = Key.generate()
    [secret] = key.secrets
    for purpose, length in (("link", 32), ("gossip", 100)):
        reference = HKDF(SHA256(), length, None, purpose.encode()).derive(secret.data)
        assert derive(secret.data, purpose, length) == reference
    found = {secret.data, key.psks()[0], key.gossip_keys()[0], key.beacon_keys()[0]}
    assert len(found) == 4 and all(len(one) == 32 for one in found)
    assert node_id(bytes(32)) == hashlib.sha256(b"mqcore cluster node" + bytes(32)).digest()[:16]


def test_nothing_shows_a_secret(tmp_path):
    key = Key.generate().accepting_new()
    assert hidden(key, repr(key) + str(key) + repr(key.secrets) + str(key.secrets[0])
                  + f"{key.secrets[0]}")
    assert not hidden(key, key.text())
    with pytest.raises(TypeError, match="path"):
        pickle.dumps(key)
    for text in (key.text().replace("accept", "except"), key.text() * 2,
                 key.text().replace(key.secrets[1].id, key.id)):
        with pytest.raises(KeyFileError) as caught:
            Key.parse(text)
        assert hidden(key, "".join(traceback.format_exception(caught.value)))


GOOD = Key.generate().text()
LINE = GOOD.splitlines()[-1]


@pytest.mark.parametrize(("text", "line", "why"), [
    ("", 0, "0 lines say offer"),
    ("hello\n", 1, "first line"),
    ("mqcore-cluster-key 2\n", 1, "first line"),
    (GOOD + LINE + "\n", 0, "2 lines say offer"),
    (GOOD + LINE.replace("offer", "accept") + "\n", 0, "same id"),
    (GOOD.replace(LINE, LINE[:-1] + ("0" if LINE[-1] != "0" else "1")), 5, "not belong"),
    (GOOD.replace(LINE, LINE[:-1]), 5, "no line of a key"),
    (GOOD + "ban 12\n", 6, "no line of a key"),
    (GOOD + "\0\n", 6, "no line of a key"),
])
def test_bad_files(tmp_path, text, line, why):
    path = tmp_path / "bad.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match=why) as caught:
        Key.load(path)
    assert caught.value.line == line and caught.value.path == str(path) and caught.value.hint


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o602, 0o666])
def test_files_that_are_open_to_others(tmp_path, mode):
    path = tmp_path / "open.key"
    Key.generate().save(path)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match="open to other users") as caught:
        Key.load(path)
    assert "chmod 600" in caught.value.hint


def test_files_of_the_group_and_no_files(tmp_path):
    path = tmp_path / "group.key"
    Key.generate().save(path)
    path.chmod(0o640)
    Key.load(path)
    for wrong in (tmp_path / "missing.key", tmp_path):
        with pytest.raises(KeyFileError) as caught:
            Key.load(wrong)
        assert isinstance(caught.value.__cause__, OSError)
    (tmp_path / "big.key").write_bytes(bytes(keys.MAX_FILE + 1))
    (tmp_path / "big.key").chmod(0o600)
    with pytest.raises(KeyFileError, match="no key"):
        Key.load(tmp_path / "big.key")


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "prod.key"
    key = Key.generate()
    key.save(path)

    def full(*_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KeyFileError, match="No space left"):
        Key.generate().save(path)
    monkeypatch.undo()
    assert Key.load(path) == key and os.listdir(tmp_path) == ["prod.key"]
    with pytest.raises(KeyFileError, match="cannot write"):
        key.save(tmp_path / "no" / "folder")


def test_newest_among_equal_times():
    first, second = Secret(bytes(32), "2026-01-01T00:00:00Z"), Secret(b"1" * 32,
                                                                      "2026-01-01T00:00:00Z")
    assert Key((first, second)).newest == second.id
