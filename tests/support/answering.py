"""A respondent that answers whatever it is asked, and how far a survey has come."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import mqcore as mq

LIMIT = 60


class Answering:
    """A respondent. It answers surveys with what they ask, `times` over, but for those of `never`;
    and it counts all of them."""

    def __init__(self, sock):
        self.sock = sock
        self.never = b"unanswered"
        self.seen = []
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        for message in self.sock.messages():
            self.seen.append(bytes(message))
            if self.seen[-1] != self.never:
                with contextlib.suppress(mq.Error):     # the surveyor has closed
                    message.reply(self.seen[-1])

    def close(self):
        self.sock.close(0)
        self.thread.join(LIMIT)


def begun(survey):
    """The first answer, that another thread has received."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(next, survey).result(LIMIT)


def in_line(survey):
    """Whether it waits for its turn."""
    return survey._ticket.waits
