"""The end of the program: what was sent is delivered or said to be lost, nothing hangs; and
Ctrl-C."""

import random
import select
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import mqcore


def start(program, *args, **more):
    text = ("import sys, time, threading, signal, os, mqcore\n"
            # a test run in the background of a shell has it ignored, and so have its children
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n" + textwrap.dedent(program))
    return subprocess.Popen([sys.executable, "-X", "faulthandler", "-c", text, *map(str, args)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def finish(process, limit=20.0):
    """(exit status, stdout, stderr); fails, with its stacks, if it does not end."""
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        out, err = process.communicate()
        pytest.fail(f"it did not end:\n{out}\n{err}")
    return process.returncode, out, err


def test_a_script_that_sends_and_simply_ends():
    with mqcore.Context() as context:
        pull = context.socket("pull", recv_hwm=None)
        at = pull.bind("tcp://127.0.0.1:*")
        sender = start("""
            push = mqcore.Push(connect=sys.argv[1], send_hwm=None, linger=30)
            for i in range(100_000):
                push.send(b"%d" % i)
            """, at)
        for i in range(100_000):
            assert pull.recv(timeout=30) == b"%d" % i
        assert finish(sender) == (0, "", "")


def test_what_could_not_be_delivered_is_said():
    status, _, err = finish(start("""
        push = mqcore.Push(connect="tcp://127.0.0.1:1", linger=0.1)
        for i in range(321):
            push.send(b"%d" % i)
        """))
    assert status == 0 and "321 message" in err


def test_the_sockets_of_all_contexts_linger_at_the_same_time(tmp_path):
    """A socket that closes gives up its address first, and lingers then. Nobody takes a message
    before all have done so."""
    with mqcore.Context() as context:
        sender = start("""
            made = []
            for i in range(5):
                context = mqcore.Context(linger=None)
                push = context.socket("push", bind=f"ipc://{sys.argv[1]}/own{i}",
                                      connect=f"ipc://{sys.argv[1]}/peer{i}")
                push.send(b"%d" % i)
                made.append((context, push))
            print("ready", flush=True)
            """, tmp_path)
        assert sender.stdout.readline() == "ready\n"
        end = time.monotonic() + 20
        while (left := list(tmp_path.glob("own*"))) and time.monotonic() < end:
            time.sleep(0.01)
        pulls = [context.socket("pull", bind=f"ipc://{tmp_path}/peer{i}") for i in range(5)]
        got = [pull.recv(timeout=20) for pull in pulls]
        assert finish(sender) == (0, "", "")
    assert got == [b"%d" % i for i in range(5)] and not left


@pytest.mark.parametrize("ending", ["", "raise ValueError('mine')", "sys.exit(3)"])
@pytest.mark.parametrize("blocked", ["recv()", *(
    pytest.param(call, marks=pytest.mark.slow) for call in ("recv(timeout=100)", "recv_many(10)"))])
def test_exit_with_a_blocked_daemon_thread_and_open_sockets(ending, blocked):
    status, _, err = finish(start(f"""
        pull = mqcore.Pull(bind="tcp://127.0.0.1:*")
        other = mqcore.Pull(bind="inproc://x")
        full = mqcore.Push(connect="inproc://x", send_hwm=1, linger=0.1)
        def stuff():
            while True:
                full.send(b"x")
        threading.Thread(target=lambda: pull.{blocked}, daemon=True).start()
        threading.Thread(target=lambda: pull.{blocked}, daemon=True).start()
        threading.Thread(target=stuff, daemon=True).start()
        time.sleep(0.1)
        {ending}
        """))
    assert status == {"": 0, "r": 1, "s": 3}[ending[:1]], err
    assert said(err) == (["ValueError: mine"] if status == 1 else [])


def said(err):
    """What a program printed but for the stacks and what it could not deliver."""
    return [line for line in err.splitlines() if line[:1] not in " T"
            and "could not be delivered" not in line]


ASLEEP = {
    "poll": "mqcore.poll([pull])",
    "wait_peers": "pull.wait_peers(1)",
    "iteration": "list(pull)",
    "events": "list(pull.events())",
    "event": "while True: stream.get()",
    "asyncio": "asyncio.run(pull.arecv())",
    "asyncio_iteration": "asyncio.run(iterate())",
    "zmq": "zmq.Context.instance().socket(zmq.PULL).recv()",
    "proxy": "zmq.proxy(zmq.Context.instance().socket(zmq.PULL), "
             "zmq.Context.instance().socket(zmq.PUSH))",
    "again": """
        while True:
            try:
                pull.recv()
            except mqcore.SocketClosed:
                pass""",
    "new": """
        while True:
            mqcore.Push(connect=pull.endpoints[0], linger=0).close()""",
    "connect_wait": 'pull.connect("tcp://127.0.0.1:1", wait=60)',
    "owed": """
        rep = mqcore.Rep(bind="tcp://127.0.0.1:*")
        mqcore.Req(connect=rep.endpoints[0]).request(b"never answered")""",
    "making": """
        from mqcore.control import idle
        class Late(idle.IdleWatch):
            def __init__(self, links):
                while not links.hub.closed:
                    time.sleep(0.001)
                super().__init__(links)
        import atexit
        from mqcore.control import hub, tables
        tables.IdleWatch = Late
        atexit.unregister(hub._at_exit)
        atexit.register(time.sleep, 0.3)    # after it: time to print
        atexit.register(hub._at_exit)
        mqcore.Push()""",
    "late": """
        import atexit
        from mqcore.control import hub
        atexit.unregister(hub._at_exit)
        atexit.register(time.sleep, 0.3)    # after it: time to print
        atexit.register(hub._at_exit)
        push = mqcore.Push()
        connect = push._links.connect
        def late(*args):
            while not push.closed:
                time.sleep(0.001)
            return connect(*args)
        type(push._links).connect = lambda self, *args: late(*args)
        push.connect(pull.endpoints[0])""",
}


@pytest.mark.parametrize("way", ASLEEP)
def test_what_a_daemon_thread_waits_for_says_nothing_at_exit(way):
    status, _, err = finish(start("""
        import asyncio, mqcore.zmq as zmq
        pull = mqcore.Pull(bind="tcp://127.0.0.1:*")
        stream = pull.events()
        async def iterate():
            async for message in pull:
                pass
        def wait():
            {}
        threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.3)
        """.format(textwrap.indent(textwrap.dedent(ASLEEP[way]), " " * 12).strip())))
    assert (status, said(err)) == (0, []), err


def test_a_daemon_thread_that_makes_a_socket_when_the_end_begins():
    status, _, err = finish(start("""
        from mqcore.control import hub
        seal = hub.Hub.seal
        def sealed(self, *args):
            seal(self, *args)
            time.sleep(0.3)     # the thread sees it before anything else happens
        hub.Hub.seal = sealed
        context = mqcore.Context()
        def make():
            while True:
                context.socket("pull").close()
        threading.Thread(target=make, daemon=True).start()
        time.sleep(0.1)
        """))
    assert (status, said(err)) == (0, []), err


def test_daemon_threads_stay_asleep_while_a_socket_lingers():
    status, _, err = finish(start("""
        push = mqcore.Push(connect="tcp://127.0.0.1:1", linger=1.5)
        push.send(b"nobody takes it")
        pull = mqcore.Pull(bind="tcp://127.0.0.1:*")
        def make():
            while True:
                mqcore.Push(connect=pull.endpoints[0], linger=0).close()
        for call in (pull.recv, make, lambda: pull.connect("tcp://127.0.0.1:1", wait=60)):
            threading.Thread(target=call, daemon=True).start()
        time.sleep(0.1)
        """))
    assert (status, said(err)) == (0, []), err


def test_the_threads_of_a_context_outlive_a_socket_in_the_making():
    """A daemon thread makes it, or closes one that was made too late to be closed."""
    status, out, err = finish(start("""
        from mqcore.control import hub
        whole, half = mqcore.Context(), mqcore.Context()
        one, another = whole.socket("pull"), half.socket("pull")
        another._links.opened = False
        hub._at_exit()
        print([(one._hub.left_behind, one._hub.started) for one in (whole, half)])
        """))
    assert (status, said(err)) == (0, []), err
    assert out.split("\n")[0] == "[(False, False), (True, True)]"


def test_a_daemon_thread_that_an_exit_handler_waits_for():
    status, out, err = finish(start("""
        import atexit
        from mqcore.control.hub import _at_exit
        atexit.unregister(_at_exit)     # to run before the handler below
        def join():
            thread.join()
            print("joined", flush=True)
        atexit.register(join)
        atexit.register(_at_exit)
        pull = mqcore.Pull(bind="tcp://127.0.0.1:*")
        def wait():
            try:
                pull.recv()
            except mqcore.SocketClosed:
                print("closed", flush=True)
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        time.sleep(0.1)
        """))
    assert (status, out, err) == (0, "closed\njoined\n", "")


def test_exit_with_a_device_a_poller_and_a_loop_that_was_left():
    status, _, err = finish(start("""
        import asyncio
        a, b = mqcore.Router(bind="tcp://127.0.0.1:*"), mqcore.Dealer(bind="tcp://127.0.0.1:*")
        moving = mqcore.device(a, b)
        pull = mqcore.Pull(bind="tcp://127.0.0.1:*")
        pull.fileno()
        threading.Thread(target=lambda: mqcore.poll([pull]), daemon=True).start()
        loop = asyncio.new_event_loop()
        task = loop.create_task(pull.arecv())
        loop.run_until_complete(asyncio.sleep(0.05))
        """))
    assert status == 0 and "Fatal" not in err


def test_a_killed_peer_and_exit_while_it_reconnects():
    status, _, err = finish(start("""
        push = mqcore.Push(connect="tcp://127.0.0.1:1", reconnect=0.01, linger=0.05)
        sub = mqcore.Sub(connect="tcp://127.0.0.1:1", reconnect=0.01)
        time.sleep(0.1)
        """))
    assert (status, err) == (0, "")


# -- signals ---------------------------------------------------------------------------------------

SETUP = """
    pull = mqcore.Pull(bind="tcp://127.0.0.1:*")
    full = mqcore.Push(connect="inproc://nowhere", send_hwm=1)
    full.send(b"1")
    sub = mqcore.Sub(connect="tcp://127.0.0.1:1"); sub.subscribe(b"")
    req = mqcore.Req(connect="tcp://127.0.0.1:1")
"""
CALLS = ["pull.recv()", "pull.recv(timeout=100)", "pull.recv_many()", "pull.recv_parts()",
         "pull.recv_msg()",
         "pull.recv_batch()", "pull.recv_into(bytearray(9))", "full.send(b'2')",
         "full.send_parts([b'2'])",
         "full.send_many([b'2'])", "full.send_ref(bytearray(9))", "sub.recv()", "req.request(b'x')",
         "mqcore.poll([pull])", "next(iter(pull))", "full.close(None)", "pull.wait_peers(1)",
         "pull.peers() or full.wait_peers(1)"]


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_any_blocked_call(call):
    process = start(SETUP + f"""
    print("ready", flush=True)
    try:
        {call}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    full.close(0)
    """)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)  # into the call; too early is only another way to be interrupted
    process.send_signal(signal.SIGINT)
    status, out, err = finish(process, 10)
    assert status == 0 and out == "interrupted\n" and "Fatal" not in err


@pytest.mark.parametrize("call", ["pull.recv(timeout=10)", "pull.recv_many(timeout=10)",
                                  "mqcore.poll([pull], timeout=10)"])
def test_a_handler_runs_and_the_call_goes_on(call):
    process = start(f"""
        pull = mqcore.Pull(bind="tcp://127.0.0.1:*")
        push = mqcore.Push(connect=str(pull.endpoints[0]))
        seen = []
        def handler(number, frame):
            seen.append(number)
            print("handled", flush=True)
        signal.signal(signal.SIGUSR1, handler)
        def later():
            sys.stdin.readline()
            push.send(b"x")
        threading.Thread(target=later).start()
        print("ready", flush=True)
        got = {call}
        assert seen == [signal.SIGUSR1] and got, (seen, got)
        """, stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "handled\n"     # before anything else wakes it
    status, _, err = finish_with(process, "\n")
    assert status == 0, err


def finish_with(process, text):
    process.stdin.write(text)
    process.stdin.flush()
    return finish(process)


def test_ctrl_c_in_the_middle_of_close_and_again():
    process = start("""
        push = mqcore.Push(connect="tcp://127.0.0.1:1")
        push.send(b"x")
        print("ready", flush=True)
        for _ in range(2):
            try:
                push.close(None)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
        """)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    status, out, err = finish(process, 10)
    assert status == 0 and out == "interrupted\n" and err == "", (status, out, err)


@pytest.mark.parametrize("pauses", [[0.3], [0.3, 0.001], [0.3, 0.003, 0.003], [0.3] + [0.001] * 9])
def test_ctrl_c_while_all_contexts_linger_at_the_end_says_what_is_lost(pauses):
    process = start("""
        import atexit
        pushes = [mqcore.Context().socket("push", linger=60) for _ in range(3)]
        for push in pushes:
            push.connect("tcp://127.0.0.1:1")
            push.send(b"x")
        atexit.register(print, "ready", flush=True)     # what is registered last comes first
        """)
    assert process.stdout.readline() == "ready\n"
    for pause in pauses:
        time.sleep(pause)
        process.send_signal(signal.SIGINT)
    _, _, err = finish(process, 10)
    assert err.count("1 message(s) could not be delivered") == 3, err


@pytest.mark.parametrize("step", "program_ends _seal_all side_by_side _ended Hub.stop".split())
def test_a_handler_that_exits_at_any_step_of_the_end_hides_no_loss(step):
    process = start(f"""
        from mqcore.control import hub
        push = mqcore.Push(connect="tcp://127.0.0.1:1", linger=0)
        push.send(b"x")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        real, first = hub.{step}, [signal.SIGTERM]
        def interrupted(*args):
            first and os.kill(os.getpid(), first.pop())
            return real(*args)
        hub.{step} = interrupted
        """)
    assert finish(process, 10)[2].count("1 message(s) could not be delivered") == 1


def test_a_handler_that_closes_the_socket_that_is_being_closed():
    process = start("""
        push = mqcore.Push(connect="tcp://127.0.0.1:1")
        push.send(b"x")
        signal.signal(signal.SIGUSR1, lambda *_: push.close(0))
        print("ready", flush=True)
        report = push.close(None)
        assert report.undelivered == 1, report
        """)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    status, _, err = finish(process, 10)
    assert status == 0, err


@pytest.mark.parametrize("call", ["recv()", "recv_many()", "recv(timeout=50)"])
def test_a_handler_that_closes_the_socket_that_is_waited_for(call):
    process = start(f"""
        pull = mqcore.Pull(bind="tcp://127.0.0.1:*")
        push = mqcore.Push(connect=pull.endpoints[0].url)
        push.wait_peers(1)
        signal.signal(signal.SIGUSR1, lambda *_: pull.close())
        print("ready", flush=True)
        try:
            pull.{call}
        except mqcore.SocketClosed:
            print("closed")
        """)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    assert finish(process, 10) == (0, "closed\n", "")


ROUND = """
        def turn():
            with mqcore.Context(linger=0.01) as context:
                pull = context.socket("pull")
                at = str(pull.bind("tcp://127.0.0.1:*"))
                push = context.socket("push", connect=at)
                push.send(b"x")
                assert pull.recv(timeout=5) == b"x"
"""


def test_interrupts_at_random_moments_of_open_and_close(seed):
    """Ctrl-C wherever it hits: the call ends, the program goes on, and its end is its own."""
    process = start(ROUND + """
        turn()      # what is imported late is there now: see the next test
        print("ready", flush=True)
        n = 0
        while n < 15:
            try:
                print(n, flush=True)        # the next Ctrl-C may come from here on
                while True:
                    turn()
            except KeyboardInterrupt:
                n += 1
        print(n, flush=True)
        """)
    assert process.stdout.readline() == "ready\n"
    assert process.stdout.readline() == "0\n"
    rng = random.Random(seed)
    deaf = 0
    while process.poll() is None and deaf < 20:
        time.sleep(rng.random() * 0.02 + 0.001)
        process.send_signal(signal.SIGINT)
        if not select.select([process.stdout], [], [], 2)[0]:
            deaf += 1         # it hit a finaliser, which cannot raise: once more
            continue
        line = process.stdout.readline()
        if not line or line == "15\n":
            break
    status, _, err = finish(process, 15)
    assert "Fatal" not in err, err
    assert status == 0, (status, err)


@pytest.mark.parametrize("rounds", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_interrupts_at_random_moments_of_the_first_use(seed, rounds):
    """What is imported late can be interrupted, and the next try has it.

    `os._exit`: after an interrupt in the middle of an `exec` (a dataclass or a named tuple that is
    being made) CPython ends the process with SIGINT even where the program caught it.
    """
    rng = random.Random(seed)
    for _ in range(rounds):
        process = start(ROUND + """
        while True:
            try:
                print("ready", flush=True)
                turn()
                break
            except KeyboardInterrupt:
                pass
        os._exit(0)
        """)
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.random() * 0.1)
        process.send_signal(signal.SIGINT)
        status, _, err = finish(process, 30)
        assert "Fatal" not in err, err
        assert status == 0, (status, err)
