"""A directory: asks "who are you?" at each interval, and tells clients what it has heard.

    python directory.py

Environment: SURVEYS  where services listen for questions (tcp://127.0.0.1:5600)
             URL      where clients ask this directory (tcp://127.0.0.1:5601)
             INTERVAL seconds from one survey to the next (1)
             DEADLINE seconds that a survey is open (0.25)
             EXPECT   services to wait for before the first survey (0)

Clients ask `list` (lines of name|url), `find NAME` (urls), `busy` (lines of url|requests, from a
survey of its own made at once) or `surveys` (how many there were, and answers that were late).
"""

import os
import threading
import time

import mqcore as mq


class Directory:
    def __init__(self, services: mq.Surveyor, deadline: float) -> None:
        self.services = services
        self.deadline = deadline
        self.known: list[str] = []
        self.surveys = 0

    def ask(self, question: bytes) -> list[str]:
        """One survey. Its context keeps its answers apart from those of any other under way."""
        with self.services.new_context() as line:
            answers = line.survey(question, deadline=self.deadline)
            return sorted({answer.decode(errors="replace") for answer in answers})

    def watch(self, interval: float) -> None:
        """Providers that answered the last survey are alive; the others are gone."""
        while True:
            next_one = time.monotonic() + interval
            try:
                found = [line for line in self.ask(b"who are you?") if line.count("|") == 1]
            except mq.SocketClosed:
                return
            if found != self.known:
                for line in sorted(set(self.known) ^ set(found)):
                    print("+" if line in found else "-", line)
                names = {line.split("|")[0] for line in found}
                print(f"survey {self.surveys + 1}: {len(found)} services of {len(names)} names",
                      flush=True)
            self.known = found
            self.surveys += 1
            time.sleep(max(0.0, next_one - time.monotonic()))

    def answer(self, request: str) -> str:
        verb, _, name = request.partition(" ")
        if verb == "list":
            return "\n".join(self.known)
        if verb == "find":
            offers = [line.split("|") for line in self.known]
            return "\n".join(url for offered, url in offers if offered == name)
        if verb == "busy":
            return "\n".join(self.ask(b"how busy are you?"))
        if verb == "surveys":
            stats, there = self.services.stats(), self.services.peers()
            accounts = [account for peer, account in stats.peers.items() if peer in there]
            accounts.append(stats.total)  # of all that have left
            late = sum(account.dropped.get("late_answer", 0) for account in accounts)
            return f"{self.surveys} surveys, {late} late answers"
        return "list, find NAME, busy or surveys, please"


def main(surveys: str, url: str, interval: float, deadline: float, expect: int) -> None:
    with mq.Surveyor(bind=surveys) as services, mq.Rep(bind=url) as clients:
        print(services.endpoints[0].url, clients.endpoints[0].url, flush=True)
        services.wait_peers(expect)
        directory = Directory(services, deadline)
        threading.Thread(target=directory.watch, args=(interval,), daemon=True).start()
        for request in clients:
            clients.send(directory.answer(request.decode(errors="replace")).encode())


if __name__ == "__main__":
    env = os.environ.get
    try:
        main(
            env("SURVEYS", "tcp://127.0.0.1:5600"),
            env("URL", "tcp://127.0.0.1:5601"),
            float(env("INTERVAL", "1")),
            float(env("DEADLINE", "0.25")),
            int(env("EXPECT", "0")),
        )
    except KeyboardInterrupt:
        pass
