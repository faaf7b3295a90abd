"""Discovery by survey: the programs of examples/discovery as processes, and what their story rests
on (late answers, two surveys at once, many of both) within this process."""

import contextlib
import itertools
import os
import resource
import select
import signal
import threading
from pathlib import Path

import pytest
from programs import run, starter

import mqcore as mq
from mqcore.testing import until

DISCOVERY = Path(__file__).resolve().parents[3] / "examples" / "discovery"
RESPONDERS = int(os.environ.get("MQCORE_RESPONDERS", "200"))
SURVEYS = int(os.environ.get("MQCORE_SURVEYS", "100"))  # 10,000 with all 200 take minutes


class Town:
    """One directory, and services that know where it asks."""

    def __init__(self, start, folder, monkeypatch, context):
        self.start, self.env, self.context = start, monkeypatch.setenv, context
        self.env("SURVEYS", f"ipc://{folder}/surveys")
        self.env("URL", f"ipc://{folder}/directory")
        self.env("DIRECTORY", f"ipc://{folder}/directory")
        self.env("INTERVAL", "0.5")
        self.env("DEADLINE", "0.25")

    def directory(self, program, expect):
        self.env("EXPECT", str(expect))
        directory = self.start(DISCOVERY / program)
        directory.line()
        self.env("URL", "tcp://127.0.0.1:0")  # of those that start later
        return directory

    def service(self, name, program="service.py", slow="0"):
        self.env("NAME", name)
        self.env("SLOW", slow)
        service = self.start(DISCOVERY / program)
        service.says = service.line()
        return service

    def client(self, *args):
        status, out, err = run(DISCOVERY / "client.py", *args)
        assert status == 0, err
        return out.decode().splitlines()

    def ask(self, question):
        """What `client.py --ask QUESTION` prints, without the process."""
        with mq.Req(connect=os.environ["DIRECTORY"], wire="sp", context=self.context) as client:
            return client.request(question, timeout=30.0).decode().splitlines()

    def surveys(self):
        """(how many there were, late answers) by now."""
        words = self.ask(b"surveys")[0].split()
        return int(words[0]), int(words[2])


@pytest.fixture
def town(tmp_path, monkeypatch, ctx):
    with starter() as start:
        yield Town(start, tmp_path, monkeypatch, ctx)


def news(directory):
    """What has changed, as (number of the survey, lines, summary)."""
    lines = []
    while not (line := directory.line()).startswith("survey"):
        lines.append(line)
    number, _, summary = line.removeprefix("survey ").partition(": ")
    return int(number), lines, summary


KINDS = ["service.py", "pynng_service.py", "service.py", "pynng_service.py", "service.py"]
NAMES = ["upper", "upper", "reverse", "length", "length"]


def test_one_survey_finds_all_services_and_the_next_misses_a_killed_one(town):
    directory = town.directory("directory.py", expect=5)
    services = [town.service(*who) for who in zip(NAMES, KINDS, strict=True)]
    found = sorted(service.says for service in services)
    assert news(directory) == (1, [f"+ {line}" for line in found], "5 services of 3 names")
    assert town.client() == found
    assert town.client("upper", "hello") == ["HELLO"]
    answered = [line.split("|") for line in town.ask(b"busy")]
    assert sorted(url for url, _ in answered) == sorted(s.says.split("|")[1] for s in services)
    assert sum(int(count) for _, count in answered) == 1
    services[2].end(signal.SIGKILL)
    surveys, _ = town.surveys()
    number, lines, summary = news(directory)
    assert lines == [f"- {services[2].says}"] and summary == "4 services of 2 names"
    assert number <= surveys + 2
    status, _, err = run(DISCOVERY / "client.py", "reverse", "hello")
    assert status == 1 and "nobody offers reverse" in err


def test_a_directory_of_pynng_finds_both_kinds(town):
    directory = town.directory("pynng_directory.py", expect=0)
    services = [town.service("upper", kind) for kind in KINDS[:2]]
    found = []
    while len(found) < 2:
        found += news(directory)[1]
    assert sorted(found) == sorted(f"+ {service.says}" for service in services)
    assert town.client("upper", "hello") == ["HELLO"]


def test_who_answers_too_late_is_not_listed(town):
    directory = town.directory("directory.py", expect=2)
    prompt = town.service("upper")
    town.service("upper", slow="0.4")
    assert news(directory) == (1, [f"+ {prompt.says}"], "1 services of 1 names")
    until(lambda: town.surveys()[1] >= 2, limit=30.0)
    assert town.ask(b"list") == [prompt.says]


# -- within this process ---------------------------------------------------------------------------


@pytest.fixture(params=["inproc", "ipc"])
def url(request, tmp_path):
    return "inproc://town" if request.param == "inproc" else f"ipc://{tmp_path}/town"


def test_late_answers_never_reach_the_next_survey(ctx, url):
    """The first survey is over by its deadline, the second by its first answer; the answer to
    each comes while the next one is open, before that one's own."""
    def answer_late():
        held = None
        for question in respondent.messages():
            if held is not None:
                held.reply(b"late: " + held.body)
            if question.body != b"1":
                question.reply(question.body)
            held = question if question.body == b"1" else None

    with mq.Surveyor(context=ctx, bind=url) as surveyor, \
            mq.Respondent(context=ctx, connect=url) as respondent:
        thread = threading.Thread(target=answer_late)
        thread.start()
        surveyor.wait_peers(1)
        for late in range(1, 4):
            assert list(surveyor.survey(b"1", deadline=0.05)) == []
            with contextlib.closing(surveyor.survey(b"2", deadline=30.0)) as answers:
                assert next(answers) == b"2"
            [account] = surveyor.stats().peers.values()
            assert account.dropped == {"late_answer": late}
    thread.join()


def answer_all(respondents, ended):
    """One thread's loop for many respondents: the question is the answer."""
    with select.epoll() as waiting:
        by_fd = {}
        for respondent in respondents:
            by_fd[respondent.fileno()] = respondent
            waiting.register(respondent.fileno(), select.EPOLLIN)
        while not ended.is_set():
            for fd, _ in waiting.poll(0.2):
                try:
                    by_fd[fd].send(by_fd[fd].recv(timeout=0))
                except mq.Timeout:
                    pass


@contextlib.contextmanager
def crowd(ctx, url, size):
    """A surveyor with so many respondents, of which one thread takes care."""
    ended = threading.Event()
    with mq.Surveyor(context=ctx, bind=url, recv_timeout=60.0) as surveyor:
        respondents = [mq.Respondent(context=ctx, connect=url) for _ in range(size)]
        thread = threading.Thread(target=answer_all, args=(respondents, ended))
        thread.start()
        try:
            surveyor.wait_peers(size, timeout=60.0)
            yield surveyor
        finally:
            ended.set()
            thread.join()
            for respondent in respondents:
                respondent.close(0)


def survey(line, question, size):
    """The first `size` answers: a survey that has them all need not wait for its deadline."""
    with contextlib.closing(line.survey(question, deadline=60.0)) as answers:
        return list(itertools.islice(answers, size))


def test_two_surveys_at_once_do_not_mix(ctx, url):
    heard = []

    def ask(surveyor, name):
        with surveyor.new_context() as line:
            for n in range(50):
                question = b"%s %d" % (name, n)
                heard.append(survey(line, question, 8) == [question] * 8)

    with crowd(ctx, url, 8) as surveyor:
        askers = [threading.Thread(target=ask, args=(surveyor, name)) for name in (b"who", b"load")]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
    assert heard == [True] * 100


def test_many_responders_and_surveys_leak_nothing(ctx, url):
    """What is alive stays the same from the first tenth of the surveys to the last."""
    size = RESPONDERS if url.startswith("inproc") else RESPONDERS // 10

    def alive():
        return {**ctx._hub._plane.counters(), "descriptors": len(os.listdir("/proc/self/fd"))}

    with crowd(ctx, url, size) as surveyor:
        for n in range(SURVEYS):
            with surveyor.new_context() as line:
                question = b"%d" % n
                assert survey(line, question, size) == [question] * size
            if n == SURVEYS // 10:
                before, memory = alive(), resident()
        assert alive() == before
        assert resident() - memory < 8 << 20
        assert surveyor.stats().received == size * SURVEYS


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
