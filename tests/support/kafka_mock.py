"""librdkafka's mock cluster in a process of its own: topics, groups and offsets as in Kafka, with
brokers that go down and come back, and errors on command.

confluent-kafka has no Python calls for it. It brings librdkafka, whose public functions
(rdkafka_mock.h) this module calls. The cluster keeps about 5 MB of each partition.
"""

import ctypes
import subprocess
import sys
from pathlib import Path

PRODUCE, FETCH, OFFSET_COMMIT = 0, 1, 8         # ApiKeys of the protocol
ERRORS = {"MSG_SIZE_TOO_LARGE": 10, "NOT_ENOUGH_REPLICAS": 19, "COORDINATOR_NOT_AVAILABLE": 15,
          "REQUEST_TIMED_OUT": 7, "NOT_LEADER_FOR_PARTITION": 6, "ILLEGAL_GENERATION": 22,
          "UNKNOWN_MEMBER_ID": 25, "TOPIC_AUTHORIZATION_FAILED": 29, "_TRANSPORT": -195}


class Cluster:
    """down(), up() and fail() return when they are done. kill() is kill -9: all is gone."""

    def __init__(self, brokers=1, **topics):
        """topics: names and numbers of partitions."""
        self.brokers = brokers
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(brokers),
             *(f"{name}={n}" for name, n in topics.items())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.servers = self.process.stdout.readline().strip()
        assert self.servers, "the mock cluster has not started"

    def url(self, **settings):
        """A rebalance takes the mock cluster nearly the whole session time-out: a short one."""
        parts = [f"{name}={value}" for name, value in settings.items()]
        if "group" in settings:
            parts += ["set=session.timeout.ms%3D3000", "set=heartbeat.interval.ms%3D100"]
        return f"kafka://{self.servers}?" + "&".join(parts)

    def _order(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "done\n"

    def down(self):
        for number in range(1, self.brokers + 1):
            self._order("down", number)

    def up(self):
        for number in range(1, self.brokers + 1):
            self._order("up", number)

    def fail(self, request, error, times=1):
        """The next requests of that kind fail so."""
        self._order("fail", request, ERRORS[error], times)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    __enter__ = lambda self: self       # noqa: E731
    __exit__ = lambda self, *_: self.kill()     # noqa: E731


def library():
    import confluent_kafka
    found = [*Path(confluent_kafka.__file__).parents[1].glob(
        "confluent_kafka.libs/librdkafka-*.so*")]
    return ctypes.CDLL(str(found[0]) if found else "librdkafka.so.1")


def main(brokers, *topics):
    kafka = library()
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, *arguments in (
            ("rd_kafka_conf_new", pointer),
            ("rd_kafka_conf_set", number, pointer, text, text, text, ctypes.c_size_t),
            ("rd_kafka_new", pointer, number, pointer, text, ctypes.c_size_t),
            ("rd_kafka_mock_cluster_new", pointer, pointer, number),
            ("rd_kafka_mock_cluster_bootstraps", text, pointer),
            ("rd_kafka_mock_topic_create", number, pointer, text, number, number),
            ("rd_kafka_mock_broker_set_down", number, pointer, number),
            ("rd_kafka_mock_broker_set_up", number, pointer, number),
            ("rd_kafka_mock_group_initial_rebalance_delay_ms", None, pointer, ctypes.c_int32),
            ("rd_kafka_mock_push_request_errors_array", None, pointer, ctypes.c_int16,
             ctypes.c_size_t, ctypes.POINTER(number))):
        function = getattr(kafka, name)
        function.restype, function.argtypes = result, arguments
    why = ctypes.create_string_buffer(500)
    settings = kafka.rd_kafka_conf_new()
    assert not kafka.rd_kafka_conf_set(settings, b"log_level", b"0", why, len(why))
    client = kafka.rd_kafka_new(0, settings, why, len(why))
    cluster = kafka.rd_kafka_mock_cluster_new(client, brokers)
    kafka.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 50)
    for topic in topics:
        name, _, partitions = topic.partition("=")
        assert not kafka.rd_kafka_mock_topic_create(cluster, name.encode(), int(partitions), 1)
    print(kafka.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        order, *rest = line.split()
        values = [int(word) for word in rest]
        if order == "down":
            assert not kafka.rd_kafka_mock_broker_set_down(cluster, *values)
        elif order == "up":
            assert not kafka.rd_kafka_mock_broker_set_up(cluster, *values)
        else:
            request, error, times = values
            kafka.rd_kafka_mock_push_request_errors_array(
                cluster, request, times, (number * times)(*[error] * times))
        print("done", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
