import fcntl
import os
import socket
import subprocess
import sys
import textwrap
import threading

import pytest

from mqcore.errors import AddressError, AddressInUse, AddressNotAvailable
from mqcore.spi import registry

ipc = registry.transport("ipc")


def stop(listening):
    if listening.release is not None:
        listening.release()
    for sock in listening.sockets:
        sock.close()


def stale(path):
    """What a killed server leaves: a socket file that nobody serves."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
    assert os.path.exists(path)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "s")


def test_connects_and_names(path, opts, closing):
    listening = closing(ipc.listen(path, opts))
    assert listening.address == path
    near = closing(ipc.connect(path, opts))
    assert ipc.finish(near) == 0
    far = closing(listening.sockets[0].accept()[0])
    assert ipc.names(far) == (f"ipc://{path}", f"ipc://{path}") == ipc.names(near)
    assert ipc.pid(far) == ipc.pid(near) == os.getpid()
    for sock in (near, *listening.sockets):
        assert sock.gettimeout() == 0 and not os.get_inheritable(sock.fileno())


def test_the_file_goes_with_release_once(path, opts):
    listening = ipc.listen(path, opts)
    listening.release()
    assert not os.path.exists(path)
    stale(path)
    listening.release()
    assert os.path.exists(path)  # another's by now
    listening.sockets[0].close()


def test_a_relative_path_survives_a_change_of_directory(tmp_path, opts, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listening = ipc.listen("s", opts)
    monkeypatch.chdir("/")
    stop(listening)
    assert not (tmp_path / "s").exists()


def test_wildcard_is_a_private_fresh_path(opts):
    one, two = ipc.listen("*", opts), ipc.listen("*", opts)
    assert one.address != two.address
    folder = os.path.dirname(one.address)
    assert os.stat(folder).st_mode & 0o777 == 0o700
    ipc.connect(one.address, opts).close()
    stop(one)
    stop(two)
    assert not os.path.exists(folder)


@pytest.mark.parametrize("address", ["*", "path", "@broken"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_listen_that_is_broken_off_leaves_nothing(tmp_path, opts, monkeypatch, address, error):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = os.listdir("/proc/self/fd")

    def broken(sock):
        raise error

    with pytest.raises(error):
        ipc.listen(address, {**opts, "listen.beside": broken})
    assert os.listdir("/proc/self/fd") == before
    assert os.listdir(tmp_path) == []


def test_abstract_names(opts, closing):
    name = f"@mq-test-{os.getpid()}"
    listening = ipc.listen(name, opts)
    near = closing(ipc.connect(name, opts))
    assert ipc.names(near)[1] == f"ipc://{name}"
    with pytest.raises(AddressInUse):
        ipc.listen(name, opts)
    stop(listening)
    with pytest.raises(ConnectionRefusedError):
        ipc.connect(name, opts)
    assert not os.path.exists(name)


def test_a_stale_file_is_taken_over(path, opts, closing):
    stale(path)
    closing(ipc.listen(path, opts))
    closing(ipc.connect(path, opts))


def test_a_killed_server_leaves_a_stale_file(path, opts, closing):
    script = textwrap.dedent(f"""
        from mqcore import options
        from mqcore.spi import registry
        listening = registry.transport("ipc").listen({path!r}, options.defaults())
        print("up", flush=True)
        input()
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as server:
        assert server.stdout.readline() == b"up\n"
        with pytest.raises(AddressInUse):
            ipc.listen(path, opts)
        server.kill()
        server.wait(10)
    assert os.path.exists(path)
    closing(ipc.listen(path, opts))


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_a_live_server_is_never_displaced(path, opts, closing, kind):
    with socket.socket(socket.AF_UNIX, kind) as server:
        server.bind(path)
        server.listen(0)
        inode = os.stat(path).st_ino
        crowd = []
        try:
            for _ in range(3):  # a full backlog too
                peer = socket.socket(socket.AF_UNIX, kind)
                peer.setblocking(False)
                crowd.append(peer)
                try:
                    peer.connect(path)
                except BlockingIOError:
                    pass
            for _ in range(3):
                with pytest.raises(AddressInUse, match=path):
                    ipc.listen(path, opts)
            assert os.stat(path).st_ino == inode
        finally:
            for peer in crowd:
                peer.close()


@pytest.mark.parametrize("what", ["file", "folder", "link"])
def test_other_files_are_never_removed(path, opts, what):
    if what == "file":
        with open(path, "w") as file:
            file.write("precious")
    elif what == "folder":
        os.mkdir(path)
    else:
        os.symlink("/nonexistent", path)
    with pytest.raises(AddressInUse):
        ipc.listen(path, opts)
    assert os.path.lexists(path)


def test_many_who_start_at_once_over_a_stale_file(path, opts):
    """One gets it, the others are told so, and the winner can be reached."""
    for _ in range(10):
        stale(path)
        got, refused, go = [], [], threading.Barrier(6)

        def start(got=got, refused=refused, go=go):
            go.wait()
            try:
                got.append(ipc.listen(path, opts))
            except AddressInUse as error:
                refused.append(error)

        threads = [threading.Thread(target=start) for _ in range(6)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert (len(got), len(refused)) == (1, 5)
        ipc.connect(path, opts).close()
        stop(got[0])
        assert not os.path.exists(path)


def test_a_folder_that_somebody_keeps_locked_only_delays(tmp_path, path, opts, closing):
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        closing(ipc.listen(path, opts))
    finally:
        os.close(folder)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_take_the_file_away(path, opts, closing):
    listening = closing(ipc.listen(path, opts))
    pid = os.fork()
    if pid == 0:
        try:
            stop(listening)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert os.path.exists(path)


def test_odd_names(tmp_path, opts):
    for name in ("a b", "\u00e9", "a\udcffb", "?"):
        listening = ipc.listen(f"{tmp_path}/{name}", opts)
        near = ipc.connect(listening.address, opts)
        assert ipc.names(near)[1] == f"ipc://{tmp_path}/{name}"
        near.close()
        stop(listening)


def test_mistakes(opts):
    with pytest.raises(AddressError, match="has 108 bytes, but the system allows 107"):
        ipc.check("x" * 108, "bind")
    ipc.check("x" * 107, "connect")
    with pytest.raises(AddressError, match="only for bind"):
        ipc.check("*", "connect")
    with pytest.raises(AddressError, match="missing"):
        ipc.check("@", "bind")
    with pytest.raises(AddressNotAvailable, match="does its folder exist"):
        ipc.listen("/nonexistent/s", opts)


def test_the_longest_path_works(tmp_path, opts, closing, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "x" * 107
    closing(ipc.listen(name, opts))
    closing(ipc.connect(name, opts))


def test_inproc_names():
    inproc = registry.transport("inproc")
    assert inproc.kind == "inproc"
    inproc.check("a name", "bind")
    inproc.check("x" * 255, "connect")
    with pytest.raises(AddressError, match="1 to 255 bytes"):
        inproc.check("x" * 256, "bind")
