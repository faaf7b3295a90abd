"""The clean environment itself: its mqcore is the installed one, and complete."""

from pathlib import Path

from sources import module_of, shipped


def test_its_only_mqcore_is_the_installed_one(installed):
    program = """
import json, sys, importlib.metadata, mqcore, mqcore.transports.tcp, mqcore.api.patterns
places = [m.__file__ for n, m in sys.modules.items() if n.split(".")[0] == "mqcore"]
found = [str(d.locate_file("")) for d in importlib.metadata.distributions() if d.name == "mqcore"]
print(json.dumps([places, found[0], [t.name for t in mqcore.transports() if not t.refused]]))
"""
    places, found, names = installed.ask(program)
    assert len(places) > 20 and all(Path(p).is_relative_to(installed.site) for p in places)
    assert Path(found) == installed.site and {"tcp", "ipc", "inproc"} <= set(names)


def test_it_has_every_module(installed):
    names = [module_of(path) for path in shipped(suffixes={".pyx"})]
    program = (f"import importlib, json\nnames = {names!r}\n"
               "print(json.dumps([importlib.import_module(name).__file__ for name in names]))")
    assert all(Path(p).is_relative_to(installed.site) for p in installed.ask(program))


def test_a_plugin_that_is_not_asked_for_is_not_there(installed, examples):
    [folder] = installed.add(examples / "mqcore-sctp")
    program = ("import json, mqcore\n"
               "print(json.dumps([[p.name, p.refused] for p in mqcore.transports()]))")
    assert ["sctp", ""] in installed.ask(program, [folder])
    assert "sctp" not in dict(installed.ask(program))
