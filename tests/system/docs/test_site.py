"""The documentation site: built strictly, complete, readable without a network."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest
from browser import CHROMIUM, Browser
from doc_examples import DOCS, ROOT, pages, programs

import mqcore as mq

pytest.importorskip("mkdocs")
pytest.importorskip("material")

COLUMNS = 100
OUTSIDE = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["']?(https?:)?//""")


def build(target, config="mkdocs.yml"):
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", target,
         "--config-file", ROOT / config],
        cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "default"})


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    answer = build(target)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return target


def text_of(site, page):
    return (site / page).read_text()


def test_what_the_code_says_is_in_the_pages(site):
    from mqcore.errors import all_errors
    from mqcore.options import CORE
    from mqcore.spi.drop import DROP_REASONS

    options, drops = text_of(site, "reference/options.html"), text_of(site, "reference/drops.html")
    assert all(f'id="{name}"' in options for name in (*CORE, "tls_ca", "ring"))
    assert all(f"<code>{name}</code>" in drops for name, _ in DROP_REASONS)
    errors = text_of(site, "reference/errors.html")
    assert all(f"<code>{kind.code}</code>" in errors for kind in all_errors())
    commands = text_of(site, "reference/cli.html")
    assert all(f'id="mq-{name}"' in commands for name in ("cat", "doctor", "journal-verify"))
    states = text_of(site, "inside/states.html")
    assert all(f"<code>{name}</code>" in states for name in (
        "HELD", "DRAINING", "PARKED", "ANSWERED", "OVER"))
    assert not any("<!-- generated" in page.read_text() or "<!-- included" in page.read_text()
                   for page in site.rglob("*.html"))


# packages whose names are those of another library, and the pages on what differs
ALIASES = {"mqcore.zmq": "coming-from/pyzmq-differences.html",
           "mqcore.nng": "coming-from/nng-differences.html"}
INTERNAL = {"mqcore.spark.plugin"}                  # what Spark looks for
GUIDED = {"mqcore": {"__version__", "ANY"}}         # the guides explain these


def public_packages():
    """The packages that declare what is public, without those below an alias."""
    for path in sorted((ROOT / "mqcore").glob("**/__init__.py")):
        name = ".".join(path.parent.relative_to(ROOT).parts)
        if "\n__all__" in path.read_text() and name not in INTERNAL and not any(
                name.startswith(f"{alias}.") for alias in ALIASES):
            yield name


def test_every_public_name_is_in_the_reference(site):
    api = "".join(page.read_text() for page in (site / "reference" / "api").glob("*.html"))
    missing, packages = [], list(public_packages())
    assert {"mqcore", "mqcore.journal", "mqcore.spark", "mqcore.testing"} <= set(packages)
    for package in packages:
        if package in ALIASES:
            assert package in text_of(site, ALIASES[package])
            continue
        if package == "mqcore.spark" and importlib.util.find_spec("pyspark") is None:
            continue
        module = importlib.import_module(package)
        missing += [f"{package}.{name}" for name in module.__all__
                    if name not in GUIDED.get(package, ())
                    and not re.search(rf'id="{package}\.(\w+\.)*{name}"', api)]
    assert not missing
    assert "Send one message of one part" in api        # a docstring of compiled code


def test_nothing_comes_from_another_host(site):
    found = [f"{page.relative_to(site)}: {match[0]}" for page in site.rglob("*.html")
             for match in OUTSIDE.finditer(page.read_text()) if 'rel="canonical"' not in match[0]]
    assert not found


def test_a_broken_link_fails(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Page\n\n[there](nowhere.md)\n")
    config = (ROOT / "mkdocs.yml").read_text()
    config = config[:config.index("nav:")].replace("hooks: [tools/docs_hooks.py]\n", "")
    (tmp_path / "mkdocs.yml").write_text(config[:config.index("  - mkdocstrings")])
    answer = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert answer.returncode == 1 and "nowhere.md" in answer.stderr


needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here (Debian: apt-get install chromium)")
# what is wider than the page, and not inside something that scrolls by itself
TOO_WIDE = """(() => {
    const wide = document.documentElement.clientWidth + 1, found = [];
    const inside = e => e && e !== document.body && (
        /auto|scroll|hidden/.test(getComputedStyle(e).overflowX) || inside(e.parentElement));
    for (const e of document.querySelectorAll(".md-content *"))
        if (e.getBoundingClientRect().right > wide && !inside(e))
            found.push(e.tagName + ": " + e.textContent.trim().slice(0, 60));
    if (document.documentElement.scrollWidth > wide) found.push("the page scrolls sideways");
    return found })()"""
# how well the texts of pictures stand out (WCAG 2.2, 1.4.3), the least of them, in light and dark
CONTRAST = """(() => {
    const parts = color => (color.match(/[\\d.]+/g) || []).map(Number);
    const over = (top, under) => {
        const [r, g, b, a = 1] = top;
        return [r, g, b].map((one, i) => one * a + under[i] * (1 - a)) };
    const light = rgb => rgb.map(one => one / 255).map(
        one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
        .reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0);
    let least = 99;
    for (const scheme of ["default", "slate"]) {
        document.body.setAttribute("data-md-color-scheme", scheme);
        const page = over(parts(getComputedStyle(document.body).backgroundColor), [0, 0, 0]);
        for (const text of document.querySelectorAll(".mq-picture text")) {
            const box = text.ownerSVGElement.querySelector(".box");
            for (const under of [page, over(parts(getComputedStyle(box).fill), page)]) {
                const [a, b] = [light(over(parts(getComputedStyle(text).fill), under)),
                                light(under)];
                least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
            } } }
    return least })()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """As wide as a phone. The pages are files, and no name can be looked up."""
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.mark.slow
@needs_chromium
def test_every_page_opens_on_a_phone(site, browser):
    found, opened = [], 0
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":         # is for servers: its links begin with the site's root
            continue
        opened += 1
        where = page.relative_to(site)
        found += [f"{where}: {text}" for text in browser.open(f"file://{page}")]
        found += [f"{where}: wider than the page: {text}" for text in browser.run(TOO_WIDE)]
    assert opened >= len(pages()) - 1 and not found, "\n".join(["", *found])


@pytest.mark.slow
@needs_chromium
def test_pictures_are_readable_in_light_and_dark(site, browser):
    for page in site.rglob("*.html"):
        if "mq-picture" in page.read_text():
            browser.open(f"file://{page}")
            assert 4.5 <= browser.run(CONTRAST) < 99, page


@needs_chromium
def test_the_search_finds_a_term(site, browser):
    assert browser.open(f"file://{site}/index.html?q=high-water%20mark") == []
    found = browser.run("""new Promise(done => {
        const look = () => {
            const links = [...document.querySelectorAll(".md-search-result__link")];
            links.length ? done(links.map(one => one.href)) : setTimeout(look, 50) };
        look() })""")
    assert any(link.startswith(f"file://{site}/guides/back-pressure.html") for link in found)


BROKEN = {
    "an error": "<script>nothing()</script>",
    "a request that fails": "<img src='nowhere.png'>",
    "a message of the console": "<script>console.error('broken')</script>",
}


@needs_chromium
@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_a_broken_page_is_noticed(browser, tmp_path, body):
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html>{body}")
    assert browser.open(f"file://{page}")


@needs_chromium
def test_a_page_that_is_too_wide_is_noticed(site, browser, tmp_path):
    page = tmp_path / "page.html"
    wide = "<p style='width: 600px'>a</p>"
    page.write_text("<!doctype html><meta name=viewport content='width=device-width'>"
                    f"<div class=md-content><div style='overflow-x: auto'>{wide}</div></div>")
    browser.open(f"file://{page}")
    assert browser.run(TOO_WIDE) == []
    browser.open(f"file://{site}/index.html")
    assert browser.run(TOO_WIDE) == []
    browser.run(f"""document.querySelector("article").insertAdjacentHTML("beforeend", "{wide}")""")
    assert browser.run(TOO_WIDE)


@pytest.fixture
def pictures():
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "tools" / "pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_are_sound_and_shown(pictures):
    shown = set(re.findall(r"<!-- picture: ([\w-]+) -->", "".join(
        page.read_text() for page in pages())))
    assert shown == {source.stem for source in pictures.SOURCES.glob("*.txt")}
    for name in shown:
        assert pictures.faults(pictures.read(name)) == []
    bad = pictures.parse("box a 0,0 " + "x" * 40 + "\nbox b 0.5,0 b", "bad")
    assert len(pictures.faults(bad)) == 3
    with pytest.raises(ValueError, match="bad.txt, line 1: 'b'"):
        pictures.parse("arrow b -> c", "bad")


MACHINES = {"engine": ("mqcore.link.lease", 2), "watch": ("mqcore.sock.watch", 3),
            "request": ("mqcore.protocols.req", 2), "survey": ("mqcore.protocols.surveyor", 2)}


@pytest.mark.parametrize("name", MACHINES)
def test_a_picture_of_states_has_the_ways_of_the_code(pictures, name):
    module, after = MACHINES[name]
    machine = importlib.import_module(module)
    picture = pictures.read(f"{name}-states")
    drawn = {(arrow.start, arrow.end) for arrow in picture.arrows}
    drawn |= {(arrow.end, arrow.start) for arrow in picture.arrows if arrow.both}
    assert set(picture.boxes) == {state for state, *_ in machine.STATES}
    assert drawn == {(row[0], row[after]) for row in machine.TRANSITIONS if row[0] != row[after]}


def test_each_pattern_has_a_program_of_ten_lines():
    page = DOCS / "reference" / "patterns.md"
    sections = re.split(r"^## ", page.read_text(), flags=re.M)[1:]
    found = {section.partition("\n")[0]: programs(section, page.name) for section in sections}
    ours = {info.name for info in mq.patterns() if info.distribution == "mqcore"}
    assert set(found) == ours and len(ours) == 25
    for name, [program] in found.items():
        lines = [line for line in program.chunks[0].code.splitlines() if line.strip()]
        assert len(lines) <= 10 and f"mq.{name.lower()}" in program.chunks[0].code.lower(), name


def test_lines_of_prose_fit():
    long = []
    for page in pages():
        for number, line in enumerate(page.read_text().split("\n"), 1):
            if len(line) > COLUMNS and not line.startswith(("|", "From `perf/")):
                long.append(f"{page.relative_to(ROOT)}:{number}: {len(line)} columns")
    assert not long, "\n".join(["", *long])


def test_the_readme_is_short_and_its_links_lead_somewhere():
    text = (ROOT / "README.md").read_text()
    assert len(text.encode()) <= 8000
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / link).exists(), link
