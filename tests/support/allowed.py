"""Exceptions from the rules of the source tree (tests/layout/test_source.py): literal tables. Each
row has its reason. A row whose file is gone fails."""

# Data plane: here every cdef function is noexcept nogil.
NATIVE_ROOMS = ("mqcore/base", "mqcore/reactor", "mqcore/wire", "mqcore/link", "protocols",
                "transports")
# (file, function): why it needs the GIL or may raise
NEEDS_GIL: dict[tuple[str, str], str] = {
    (f"mqcore/base/waits.{kind}", "yield_locks"): "the control plane's locks are Python objects"
    for kind in ("pxd", "pyx")}
# Files that take the GIL, and why.
WITH_GIL: dict[str, str] = {
    "mqcore/spi/python/pattern_ops.pyx": "operations of patterns written in Python",
    "mqcore/spi/python/strategy_ops.pyx": "operations of strategies written in Python",
    "mqcore/spi/python/filter_ops.pyx": "a filter's session, which runs on a thread of its own",
    "mqcore/devices/python_hooks.pyx": "hooks written in Python, on the device's thread",
    "mqcore/devices/gate.pyx": "who may write which topic is asked once, and then known",
    "mqcore/journal/store/many.pyx": "a topic's first message opens its files",
    "mqcore/journal/store/packing.pyx": "blocks are compressed by pyarrow",
    "mqcore/journal/store/scan.pyx": "compressed blocks are decompressed by pyarrow",
    "tests/native/journal_disk.pyx": "a test looks at the disk before each call of the system",
    "tests/native/pattern_bench.pyx": "its host hands a pattern's events to the test",
}
# by tools/stubs.py, from shorter files
GENERATED = {"mqcore/__init__.pyi", "mqcore/_options.pyi"}
# file: why it is longer than 500 lines
LONG: dict[str, str] = {
    "mqcore/zmq/constants.py": "one list: every constant in its enum, and by its own name",
    "mqcore/journal/store/core.pyx": "one class: all calls that append, and the same log as a sink",
    "mqcore/journal/store/log.pyx": "everything that happens with the log's lock held",
    "tests/native/pattern_bench.pyx": "one host and its Python face, for tests only",
}
# (file, function): why it has more than 50 lines
LONG_FUNCTIONS: dict[tuple[str, str], str] = {
    ("mqcore/wire/encode.pxd", "encode_loop"): "one loop, inlined into each codec with its state",
    ("mqcore/wire/zmtp/codec.pyx", "_decode"): "one loop over the bytes, its state in registers",
    ("mqcore/journal/store/scan.pyx", "walk"): "one loop over the blocks, its state in registers",
    ("mqcore/binding/sending.pyx", "_send_batch"): "one loop, and the checks of its buffers",
    ("mqcore/binding/internals.pyx", "_adopt"): "twenty arguments of an engine, each copied once",
    ("mqcore/link/engine.pyx", "engine_new"): "each field of an engine, in the order of its struct",
    ("mqcore/cli/cat.py", "cat"): "a parameter for each option of the command",
    ("mqcore/cli/device.py", "device"): "a parameter for each option of the command",
    ("examples/demo.py", "serve"): "the demonstration, to be read from top to bottom",
    **{(f"tests/support/{file}.py", name): "a stress program: its threads share its variables"
       for file, names in {"second_wire": ("buses", "surveys", "wires"), "sealed": ("sealed",),
                           "turmoil": ("contexts",), "turmoil_crowds": ("crowd", "loops")}.items()
       for name in names},
    **{(file, name): "one scenario, told in order" for file, name in (
        ("tests/spark/test_servers.py",
         "test_exactly_once_while_servers_and_workers_are_killed"),
        ("tests/system/accounting/test_laws.py",
         "test_random_programs_of_peers_that_come_and_go"),
        ("tests/system/api/test_own_patterns.py",
         "test_threads_that_send_receive_look_and_reconnect"),
        ("tests/system/transports/test_stream.py",
         "test_http_served_to_urllib_and_fetched_from_asyncio"))},
}
# What lives as long as the process: (file, name): why. UPPER names are constants: they are
# assigned at the top level only, which is checked, and need no row.
GLOBALS: dict[tuple[str, str], str] = {
    ("mqcore/binding/spent.pyx", "kept"): "memory of large bodies, 8 MiB at most",
    ("mqcore/base/sodium.pyx", "_table"): "a shared library's calls: found once",
    ("mqcore/base/sodium.pyx", "_found"): "whether they are",
    ("mqcore/journal/store/exclusive.py", "_locks"): "a forked child lets go of them",
    ("mqcore/journal/store/exclusive.py", "_opening"): "no fork while one is being opened",
    ("mqcore/journal/store/exclusive.py", "_renaming"): "by thread; each rename takes its own out",
    ("mqcore/journal/store/notify.py", "_lock"): "over the one inotify instance",
    ("mqcore/journal/store/notify.py", "_hub"): "the one inotify instance, while something follows",
    ("mqcore/journal/store/place.py", "_synced"): "folders known to be durable, at most 1000",
    ("mqcore/journal/store/place.py", "_warned"): "files that were warned of, at most 1000",
    ("mqcore/sock/notify.pyx", "_ending"): "a ring and its socket, which may end at the same time",
    ("mqcore/journal/store/process.pyx", "SHARED"): "all logs, for forks, and the flusher's bell",
    ("mqcore/journal/store/packing.pyx", "_packing"): "how many blocks are compressed now",
    ("mqcore/journal/store/packing.pyx", "_collected"): "whether the collector was on before them",
    ("mqcore/base/sodium.pyx", "_looking"): "a lock: two threads look for it at once",
    ("tests/native/hook_samples.pyx", "TEXT"): "a hook's text, which its next call overwrites",
    ("mqcore/base/waits.pyx", "MAIN"): "the main thread, another one in a forked child",
    ("mqcore/base/waits.pyx", "COLLECTOR"): "the collector calls us for the whole process",
    ("mqcore/base/waits.pyx", "AWAKE"): "whether the program ends: asked where a call fails",
    ("mqcore/binding/handle.pyx", "get_ident"): "a function, kept at hand",
    ("mqcore/binding/handle.pyx", "MAIN"): "the main thread, another one in a forked child",
    ("mqcore/binding/handle.pyx", "WAITS"): "calls that sleep, while MQCORE_DEBUG is set",
    ("mqcore/api/debugging.py", "_waits"): "the same table",
    ("mqcore/api/debugging.py", "_state"): "whether the process is debugged, and its thread",
    ("mqcore/spi/python/operation.pyx", "MAIN"): "the main thread, another one in a forked child",
    ("mqcore/spi/python/operation.pyx", "GATE"): "guards the next two",
    ("mqcore/spi/python/operation.pyx", "RUNNING"): "operations in Python, of all sockets",
    ("mqcore/spi/python/operation.pyx", "COLLECTING"): "the process's collector, while some run",
    ("mqcore/spi/pattern.pyx", "get_ident"): "a function, kept at hand",
    ("mqcore/spi/python/operation.pyx", "get_ident"): "a function, kept at hand",
    ("mqcore/journal/server/service.py", "_services"): "a forked child lets go of what they had",
    ("mqcore/trace/recent.py", "RING"): "the latest spans of the process, at most 4096",
    ("mqcore/trace/flow.py", "FLOW"): "who keeps the current trace: mqcore or OpenTelemetry",
    ("mqcore/monitor/agent.py", "_agents"): "closed when the interpreter exits",
    ("mqcore/monitor/protocol.py", "_request"): "a decoder, made once",
    ("mqcore/monitor/protocol.py", "_answer"): "a decoder, made once",
    ("mqcore/monitor/protocol.py", "_event"): "a decoder, made once",
    ("mqcore/journal/reader.py", "_readers"): "a forked child renews their locks",
    ("mqcore/journal/server/connection.py", "_connections"): "a forked child renews them",
    ("mqcore/journal/store/notify.py", "_leaving"): "what a signal handler leaves to the call that "
                                                    "it has interrupted",
    ("mqcore/api/running.py", "_running"): "a forked child has none of their threads",
    ("mqcore/zmq/ssh/openssh.py", "_children"): "tunnels, to be ended with the process",
    ("mqcore/zmq/ssh/openssh.py", "_cancels"): "forwards that another process does for us",
    ("mqcore/zmq/error.py", "_last"): "zmq_errno(): each thread's last number",
    ("mqcore/zmq/backend/select.py", "public_api"): "a constant by pyzmq's name",
    ("mqcore/zmq/utils/garbage.py", "gc"): "the buffers in use, by pyzmq's name",
    ("mqcore/api/poll.py", "_sets"): "what each thread polled last, a bounded number",
    ("mqcore/zmq/poller.py", "_sets"): "what each thread polled last, a bounded number",
    ("mqcore/binding/blocking.py", "_seen"): "call sites that were warned of, bounded",
    ("mqcore/api/context.py", "_lock"): "guards the default context",
    ("mqcore/api/context.py", "_default"): "the default context",
    ("mqcore/spi/registry.py", "_link_claims"): "the cache of plug-ins found: their options",
    ("mqcore/spi/registry.py", "_transports"): "the cache of plug-ins found",
    ("mqcore/spi/registry.py", "_filters"): "the cache of plug-ins found",
    ("mqcore/spi/registry.py", "_patterns"): "the cache of plug-ins found",
    ("mqcore/spi/registry.py", "_strategies"): "the cache of plug-ins found",
    ("mqcore/spi/registry.py", "_resolvers"): "the cache of plug-ins found",
    ("mqcore/bridge/bridge.py", "_bridges"): "a forked child has none of their threads",
    ("mqcore/bridge/plugins.py", "_bridges"): "the cache of plug-ins found",
    ("mqcore/bridge/jobs.py", "plugin"): "the plug-in: functions, no state",
    ("mqcore/bridge/topic.py", "plugin"): "the plug-in: functions, no state",
    ("mqcore/bridge/redis.py", "plugin"): "the plug-in: its name, no other state",
    ("mqcore/bridge/redis.py", "secure"): "the plug-in: its name, no other state",
    ("mqcore/bridge/amqp.py", "plugin"): "the plug-in: its name, no other state",
    ("mqcore/bridge/amqp.py", "secure"): "the plug-in: its name, no other state",
    ("mqcore/bridge/mqtt.py", "plugin"): "the plug-in: its name, no other state",
    ("mqcore/bridge/mqtt.py", "secure"): "the plug-in: its name, no other state",
    ("mqcore/bridge/amqp10.py", "plugin"): "the plug-in: its name, no other state",
    ("mqcore/bridge/amqp10.py", "secure"): "the plug-in: its name, no other state",
    ("mqcore/bridge/kafka.py", "plugin"): "the plug-in: its name, no other state",
    ("mqcore/bridge/kafka.py", "secure"): "the plug-in: its name, no other state",
    ("mqcore/bridge/stomp.py", "plugin"): "the plug-in: its name, no other state",
    ("mqcore/bridge/stomp.py", "secure"): "the plug-in: its name, no other state",
    ("mqcore/bridge/webhook.py", "plugin"): "the plug-in: its name, no other state",
    ("mqcore/bridge/webhook.py", "secure"): "the plug-in: its name, no other state",
    ("mqcore/bridge/nats.py", "plugin"): "the plug-in: its name, no other state",
    ("mqcore/bridge/nats.py", "secure"): "the plug-in: its name, no other state",
    ("mqcore/resolvers/dns.py", "resolver"): "the plug-in: functions, no state",
    ("mqcore/resolvers/file.py", "resolver"): "the plug-in: functions, no state",
    ("mqcore/resolvers/srv.py", "resolver"): "the plug-in: functions, no state",
    ("mqcore/cluster/resolver.py", "resolver"): "the plug-in: functions, no state",
    ("transports/fd.py", "transport"): "the plug-in; which descriptors it has taken",
    ("transports/vsock.py", "transport"): "the plug-in: functions, no state",
    ("transports/tcp.py", "transport"): "the plug-in: functions, no state",
    ("transports/ipc.py", "transport"): "the plug-in: functions, no state",
    ("transports/inproc.py", "transport"): "the plug-in: functions, no state",
    ("transports/udp.py", "transport"): "the plug-in: functions, no state",
    ("transports/ws.py", "websocket"): "the plug-in: functions, no state",
    ("transports/ws.py", "ws"): "a name for others, no state",
    ("transports/ws.py", "wss"): "a name for others, no state",
    ("transports/tls.py", "filter"): "the plug-in: functions, no state",
    ("transports/shm.py", "transport"): "the plug-in: functions, no state",
}
# rooms whose threads, locks and descriptors the system must see as they are
UNPATCHED = tuple(f"mqcore/{room}/" for room in (
    "base", "reactor", "wire", "spi", "link", "sock", "binding", "devices", "control", "api", "zmq",
    "nng", "journal", "resolvers")) + ("transports/",)
# file: why gevent may replace what it waits with
PATCHED: dict[str, str] = {
    "mqcore/base/native.py": "the one place",
    "mqcore/journal/waiting.py": "a greenlet that follows a journal lets the others run",
    "mqcore/zmq/ssh/forward.py": "paramiko's sockets, which the program may have patched",
    "mqcore/zmq/ssh/openssh.py": "waits for a child process, and the program may be patched",
    "mqcore/zmq/ssh/tunnel.py": "paramiko's sockets, which the program may have patched",
}
