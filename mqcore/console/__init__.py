"""A page that shows monitored programs, live: what `mq console` serves.

    from mqcore.console import Console

    with Console() as console:
        print(console.url)          # open it in a browser of this machine
        input()

The page and its files come over HTTP. Its requests and their answers are messages of a REQ and a
REP, over ws://, one JSON object each (requests.py). The page asks once a second for what it shows,
so a page that is not looked at costs nothing.
"""

from mqcore.console.serving import Console

__all__ = ["Console"]
