"""The examples of the documentation that need a broker, over a real one."""

import pytest
from doc_examples import BROKERS, ROOT, Runner, pages, programs

pytestmark = pytest.mark.brokers
FOUND = [program for page in pages()
         for program in programs(page.read_text(), page.relative_to(ROOT).as_posix())
         if program.kind in BROKERS.values()]


@pytest.mark.parametrize("program", FOUND, ids=lambda program: program.where)
def test_program(program, broker, monkeypatch):
    monkeypatch.setenv("BROKER", broker(program.kind).url)
    runner = Runner()
    try:
        wrong = runner.run([program])
    finally:
        runner.close()
    assert not wrong, "\n".join(["", *wrong])


def test_pages_compare_with_brokers_that_run():
    assert {program.kind for program in FOUND} >= {"nats", "amqp"}
