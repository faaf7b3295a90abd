"""PUBHandler: log records at a PUB socket, by topic; TopicLogger: topics as an argument."""

# mypy: disable-error-code="override, assignment"
# TopicLogger's calls take more than logging's, as pyzmq's do

from __future__ import annotations

import logging
from copy import copy
from typing import Any

from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import SocketType
from mqcore.zmq.context import Context
from mqcore.zmq.socket import Socket

TOPIC_DELIM = "::"  # a message "sub::text" goes to the topic LEVEL.sub
WITH_PLACE = "%(levelname)s %(filename)s:%(lineno)d - %(message)s"
FORMATS = {logging.DEBUG: f"{WITH_PLACE}\n", logging.INFO: "%(message)s\n",
           logging.WARNING: f"{WITH_PLACE}\n", logging.ERROR: f"{WITH_PLACE} - %(exc_info)s\n",
           logging.CRITICAL: f"{WITH_PLACE}\n"}


class PUBHandler(logging.Handler):
    """Sends each record as [root.LEVEL.sub, text]. Given a socket, or an address to bind."""

    ctx: Context
    socket: Socket

    def __init__(self, interface_or_socket: str | Socket, context: Context | None = None,
                 root_topic: str = "") -> None:
        super().__init__()
        self._root_topic = root_topic
        self.formatters = {level: logging.Formatter(text) for level, text in FORMATS.items()}
        if isinstance(interface_or_socket, Socket):
            self.socket = interface_or_socket
            self.ctx = self.socket.context
        else:
            self.ctx = context or Context()
            self.socket = self.ctx.socket(SocketType.PUB)
            self.socket.bind(interface_or_socket)

    @property
    def root_topic(self) -> str:
        """The first word of every topic."""
        return self._root_topic

    @root_topic.setter
    def root_topic(self, value: str) -> None:
        self.setRootTopic(value)

    def setRootTopic(self, root_topic: str | bytes) -> None:  # noqa: N802 - as logging's names
        """Set the first word of every topic."""
        self._root_topic = root_topic.decode() if isinstance(root_topic, bytes) else root_topic

    def setFormatter(self, fmt: logging.Formatter | None,  # noqa: N802
                     level: int = logging.NOTSET) -> None:
        """The formatter of this level, of all without one."""
        if level == logging.NOTSET:
            self.formatters = dict.fromkeys(self.formatters, fmt or logging.Formatter())
        else:
            self.formatters[level] = fmt or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        """The text, by its level's formatter."""
        formatter = self.formatters.get(record.levelno, self.formatter)
        return (formatter or self.formatters[logging.WARNING]).format(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Send it."""
        try:
            plain, topics = self._split(record)
            self.socket.send_multipart([topics.encode(), self.format(plain).encode()])
        except Exception:
            self.handleError(record)

    def _split(self, record: logging.LogRecord) -> tuple[logging.LogRecord, str]:
        """The record without its topic, and all topics with dots between."""
        words = [self._root_topic, record.levelname]
        message = record.msg if isinstance(record.msg, str) else str(record.msg)
        topic, mark, text = message.partition(TOPIC_DELIM)
        if mark:
            record = copy(record)
            record.msg = text
            words.append(topic)
        return record, ".".join(word for word in words if word)


class TopicLogger(logging.Logger):
    """A logger whose calls take a topic first: log(level, topic, text, ...), info(topic, text)."""

    def log(self, level: int, topic: str, msg: str,
            *args: Any, **kwargs: Any) -> None:
        """Log `msg` under `topic`."""
        super().log(level, f"{topic}{TOPIC_DELIM}{msg}", *args, **kwargs)

    def debug(self, topic: str, msg: str, *args: Any, **kwargs: Any) -> None:
        """log() at DEBUG."""
        self.log(logging.DEBUG, topic, msg, *args, **kwargs)

    def info(self, topic: str, msg: str, *args: Any, **kwargs: Any) -> None:
        """log() at INFO."""
        self.log(logging.INFO, topic, msg, *args, **kwargs)

    def warning(self, topic: str, msg: str, *args: Any, **kwargs: Any) -> None:
        """log() at WARNING."""
        self.log(logging.WARNING, topic, msg, *args, **kwargs)

    warn = warning

    def error(self, topic: str, msg: str, *args: Any, **kwargs: Any) -> None:
        """log() at ERROR."""
        self.log(logging.ERROR, topic, msg, *args, **kwargs)

    def exception(self, topic: str, msg: str, *args: Any, **kwargs: Any) -> None:
        """log() at ERROR, with the exception."""
        self.log(logging.ERROR, topic, msg, *args, exc_info=True, **kwargs)

    def critical(self, topic: str, msg: str, *args: Any, **kwargs: Any) -> None:
        """log() at CRITICAL."""
        self.log(logging.CRITICAL, topic, msg, *args, **kwargs)

    fatal = critical


__getattr__ = lend(__name__)
