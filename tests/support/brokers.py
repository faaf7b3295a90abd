"""Real brokers for `make test-brokers`: programs of tools/brokers.sh, each in the foreground, with
a folder and a loopback port of its own. kill() is kill -9; start() runs the broker again over the
same files. Tests that come here never skip: a broker that is missing is a failure.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import psutil
from ports import free_port

ROOT = Path(os.environ.get("MQCORE_BROKERS", "build/brokers/root")).absolute()
READY = 240.0       # seconds until a broker must serve


class Broker:
    """port: where it serves; the same after each start."""

    scheme = ""

    def __init__(self, folder):
        if not ROOT.is_dir():
            raise FileNotFoundError(f"{ROOT}: no brokers there; run `make test-brokers`, or "
                                    "tools/brokers.sh and set MQCORE_BROKERS to what it prints")
        self.folder = folder
        folder.mkdir()
        self.port = free_port()
        self.process = None

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def command(self):
        raise NotImplementedError

    def environment(self):
        return {}

    def start(self, port_open=True):
        libraries = ":".join(map(str, (*ROOT.glob("usr/lib/*-linux-gnu"),
                                       *ROOT.glob("lib/*-linux-gnu"))))
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                list(map(str, self.command())), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder, start_new_session=True,
                env={"LD_LIBRARY_PATH": libraries, "HOME": str(self.folder),
                     "PATH": "/usr/bin:/bin", **self.environment()})
        if port_open:
            self.wait()
        return self

    def wait(self):
        """Until the port is open."""
        end = time.monotonic() + READY
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                text = (self.folder / "log").read_text(errors="replace")[-3000:]
                assert self.process.poll() is None, f"{self.command()[0]} has ended:\n{text}"
                assert time.monotonic() < end, f"{self.command()[0]} does not serve:\n{text}"
            time.sleep(0.02)

    def kill(self):
        """kill -9: the broker, and all that it has started."""
        if self.process is not None:
            tree: list = [self.process]
            with contextlib.suppress(psutil.NoSuchProcess):
                tree[:0] = psutil.Process(self.process.pid).children(recursive=True)
            for one in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(tree[:-1], READY)
            self.process.wait()
            self.process = None

    def close(self):
        self.kill()


class Redis(Broker):
    scheme = "redis"
    fsync = "always"

    def command(self):
        return (ROOT / "usr/bin/redis-server", "--port", self.port, "--bind", "127.0.0.1",
                "--dir", self.folder, "--save", "", "--appendonly", "yes",
                "--appendfsync", self.fsync)


class Nats(Broker):
    scheme = "nats"

    def command(self):
        return (ROOT / "usr/sbin/nats-server", "-a", "127.0.0.1", "-p", self.port, "-js",
                "-sd", self.folder)


class Mosquitto(Broker):
    scheme = "mqtt"

    anonymous = True

    def command(self):
        (self.folder / "conf").write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous {str(self.anonymous).lower()}\n"
            f"user root\npersistence true\npersistence_location {self.folder}/\n"
            "max_queued_messages 0\nset_tcp_nodelay true\nlog_dest stderr\n")
        return ROOT / "usr/sbin/mosquitto", "-c", self.folder / "conf"

    def kill(self):
        """SIGTERM: mosquitto confirms messages before they are on disk, and writes them at its end
        (mosquitto.conf(5), autosave_interval). A bridge cannot keep what kill -9 loses there."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(READY)
            finally:
                super().kill()


class RabbitMQ(Broker):
    """Its name server, epmd, is ours: else Erlang starts one that outlives the broker."""

    scheme = "amqp"
    plugin = ""
    listener = ""       # of the plug-in; "" if it uses AMQP's

    def __init__(self, folder):
        super().__init__(folder)
        self.epmd, self.distribution = free_port(), free_port()
        self.node_port = free_port() if self.listener else self.port
        (folder / "plugins").write_text(f"[{self.plugin}].\n")
        [runtime] = ROOT.glob("usr/lib/erlang/erts-*/bin")
        (folder / "bin").mkdir()        # Debian's `erl` looks in /usr/lib, wherever it is itself
        (folder / "bin/erl").write_text(
            f"#!/bin/sh\nexport ROOTDIR={ROOT}/usr/lib/erlang BINDIR={runtime} EMU=beam "
            'PROGNAME=erl\nexec "$BINDIR/erlexec" ${1+"$@"}\n')
        (folder / "bin/erl").chmod(0o755)
        (folder / "rabbitmq.conf").write_text("disk_free_limit.absolute = 50MB\n" + (
            f"{self.listener} = 127.0.0.1:{self.port}\n" if self.listener else ""))
        self.names = subprocess.Popen(
            [ROOT / "usr/lib/erlang/bin/epmd", "-port", str(self.epmd), "-address", "127.0.0.1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def command(self):
        return (*ROOT.glob("usr/lib/rabbitmq/lib/*/sbin/rabbitmq-server"),)

    def environment(self):
        at, name = self.folder, f"t{self.port}@localhost"
        return {"RABBITMQ_NODENAME": name, "RABBITMQ_MNESIA_BASE": f"{at}/mnesia",
                "RABBITMQ_LOG_BASE": f"{at}/log.d", "RABBITMQ_LOGS": "-",
                "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
                "RABBITMQ_NODE_PORT": str(self.node_port),
                "RABBITMQ_DIST_PORT": str(self.distribution), "RABBITMQ_PID_FILE": f"{at}/pid",
                "RABBITMQ_ENABLED_PLUGINS_FILE": f"{at}/plugins",
                "RABBITMQ_CONFIG_FILE": f"{at}/rabbitmq", "RABBITMQ_CONF_ENV_FILE": "/dev/null",
                "ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_EPMD_PORT": str(self.epmd),
                "PATH": f"{at}/bin:/usr/bin:/bin",
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS":
                    "-kernel inet_dist_use_interface {127,0,0,1}"}

    def close(self):
        super().close()
        self.names.kill()
        self.names.wait()


class RabbitStomp(RabbitMQ):
    scheme, plugin, listener = "stomp", "rabbitmq_stomp", "stomp.listeners.tcp.1"


class RabbitAmqp10(RabbitMQ):
    scheme, plugin = "amqp10", "rabbitmq_amqp1_0"


class ActiveMQ(Broker):
    """From a URI, so it needs no Spring. It syncs its journal before it answers."""

    scheme = "stomp"
    jars = ("activemq-broker", "activemq-client", "activemq-console", "activemq-kahadb-store",
            "activemq-protobuf", "activemq-stomp", "activemq-openwire-legacy",
            "geronimo-jms_1.1_spec", "geronimo-j2ee-management-1.1-spec", "geronimo-jta-1.2-spec",
            "hawtbuf", "slf4j-api", "slf4j-simple", "jackson-core", "jackson-databind",
            "jackson-annotations")

    def command(self):
        java = shutil.which("java")
        assert java, "ActiveMQ needs a Java from 11 on: apt-get install openjdk-17-jre-headless"
        options = f"persistent=true&useJmx=false&dataDirectory={self.folder}/data"
        return (java, "-Xms64M", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
                f"-Dactivemq.home={self.folder}", f"-Djava.io.tmpdir={self.folder}",
                "-cp", ":".join(f"{ROOT}/usr/share/java/{jar}.jar" for jar in self.jars),
                "org.apache.activemq.console.command.ShellCommand", "start",
                f"broker:(stomp://127.0.0.1:{self.port})?{options}")


KINDS = {kind.scheme: kind for kind in (Redis, Nats, Mosquitto, RabbitMQ, RabbitAmqp10)}
KINDS |= {"activemq": ActiveMQ, "rabbit-stomp": RabbitStomp}
