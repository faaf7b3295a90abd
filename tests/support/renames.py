"""Topics to be renamed."""

from mqcore import journal

MESSAGES = [b"%d" % i for i in range(6)]


def fill(where, topic="a", partitions=2, messages=MESSAGES):
    """Two segments in each partition."""
    for partition in range(partitions):
        with journal.open(where, "a", topic=topic, partition=partition) as log:
            log.append_many(messages[:3])
            log.rotate()
            log.append_many(messages[3:])


def ids(where):
    return {(row.topic, row.partition): row.id for row in journal.list_partitions(where)}
