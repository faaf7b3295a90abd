"""The systems that brokers.py compares, a file each; __init__ is the list of them.

Nothing here imports a client before it is used: what is not installed is left out, and named.
"""

from __future__ import annotations

from systems.activemq import ActiveMQ, DurableActiveMQ
from systems.beanstalkd import Beanstalkd, DurableBeanstalkd, PipedBeanstalkd
from systems.libraries_of import Mqcore, MqcoreMany, Pynng, Pyomq, Pyzmq, Zenoh
from systems.mosquitto import MosquittoQos0, MosquittoQos1
from systems.mqcore_journal import MqcoreJournal
from systems.mqcore_queue import MqcoreQueue
from systems.nats import JetStream, NatsCore
from systems.rabbitmq import DurableRabbitMQ, RabbitMQ
from systems.redis import RedisPubSub, RedisStreams
from systems.system import System

GROUPS = {
    "no broker": "no broker: messages live in the memory of their two ends",
    "broker": "a broker, in memory: messages are lost with the broker's process",
    "stored": "stored: messages survive the death of the broker's process",
}

SYSTEMS: dict[str, type[System]] = {
    one.name: one
    for one in (
        Mqcore, MqcoreMany, Pyzmq, Pyomq, Pynng, Zenoh,
        NatsCore, RedisPubSub, MosquittoQos0, MosquittoQos1, RabbitMQ, ActiveMQ, Beanstalkd,
        MqcoreJournal, MqcoreQueue, JetStream, RedisStreams, DurableRabbitMQ, DurableActiveMQ,
        DurableBeanstalkd, PipedBeanstalkd,
    )
}  # fmt: skip

#: asked for, and not to be had
ABSENT = {
    "kafka": "Debian and PyPI have no Kafka broker, only librdkafka's mock cluster, which keeps "
             "the last few thousand messages of a partition and so measures nothing",
    "nsq": "Debian and PyPI have no nsqd",
    "artemis": "Debian's package of that name is a genome browser",
}
