"""The page of `mq console` in headless Chromium: live, quiet, small, on a phone, by keyboard."""

import base64
import contextlib
import json
import os
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from monitored import child, end
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.console import Console, requests
from mqcore.console.serving import PAGES
from mqcore.console.web import FILES, FOLDER
from mqcore.monitor import Publish

LIMIT = 60
# Pictures for the guide: MQCORE_PICTURES=docs/assets
PICTURES = os.environ.get("MQCORE_PICTURES")
SHOP = """
import sys, threading, mqcore as mq
sys.argv[0] = "shop.py"
news, orders, prices, goods = (
    mq.socket(pattern, bind=f"ipc://{sys.argv[1]}/{pattern}", linger=0)
    for pattern in ("pub", "pull", "rep", "push"))
end = threading.Event()
def sell():
    while not end.wait(0.02):
        news.send_parts([b"news", b"fresh bread"])
        try:
            goods.send(bytes(10_000), timeout=0)
        except mq.Timeout:      # the customer takes none
            pass
def answer():
    while not end.is_set():
        try:
            prices.recv(timeout=0.2)
            prices.send(b"7.50")
        except mq.Timeout:
            pass
def take():
    while not end.is_set():
        try:
            orders.recv(timeout=0.2)
        except mq.Timeout:
            pass
threads = [threading.Thread(target=one) for one in (sell, answer, take)]
[one.start() for one in threads]
print("ready", flush=True)
sys.stdin.readline()
end.set()
[one.join() for one in threads]
[one.close() for one in (news, orders, prices, goods)]
"""
CUSTOMER = """
import sys, threading, mqcore as mq
sys.argv[0] = "customer.py"
reads, clerk, cart = (
    mq.socket(pattern, connect=f"ipc://{sys.argv[1]}/{what}", linger=0, **more)
    for pattern, what, more in (("sub", "pub", {"topics": ["news"]}), ("push", "pull", {}),
                                ("pull", "push", {"recv_hwm": 1})))
[one.wait_peers(1, timeout=60) for one in (reads, clerk, cart)]
end = threading.Event()
def work():
    while not end.is_set():
        clerk.send(b"an order", timeout=60)
        try:
            reads.recv(timeout=0.2)
        except mq.Timeout:
            pass
thread = threading.Thread(target=work)
thread.start()
print("ready", flush=True)
sys.stdin.readline()
end.set()
thread.join()
[one.close() for one in (reads, clerk, cart)]
"""

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here (Debian: apt-get install chromium)")


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile"), hosts=("127.0.0.1",)) as one:
        yield one


@pytest.fixture
def browser(chromium):
    yield chromium
    chromium.leave()            # a page whose console has ended tries to connect again


@pytest.fixture
def shop(folder):
    shop = child(SHOP, str(folder.parent), MQCORE_MONITOR="1")
    customer = child(CUSTOMER, str(folder.parent), MQCORE_MONITOR="1")
    yield shop
    end(customer)
    end(shop)


def size(browser, width, height, dark=False):
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=width < 500)
    browser.call("Emulation.setEmulatedMedia", features=[
        {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])


def shows(browser, what, words, limit=LIMIT):
    """Wait until an element's text has all these words."""
    program = f"document.querySelector({json.dumps(what)})?.textContent || ''"
    until(lambda: all(word in browser.run(program) for word in words), limit)
    return browser.run(program)


def click(browser, what):
    assert browser.run(f"document.querySelector({json.dumps(what)})?.click() === undefined"), what


def press(browser, key, code):
    for kind in ("rawKeyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                     windowsVirtualKeyCode=code)


def picture(browser, name):
    data = base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"])
    assert data.startswith(b"\x89PNG")
    if PICTURES:
        Path(PICTURES, f"{name}.png").write_bytes(data)


def complaints(browser):
    from browser import complaint
    return [text for one in browser.events if (text := complaint(one["method"], one["params"]))]


def test_the_files_are_small():
    assert sum((FOLDER / name).stat().st_size for name, _ in FILES.values()) < 300_000


def test_every_view_is_live_and_quiet(browser, shop, folder, tmp_path):
    with journal.open(tmp_path / "log", "a", topic="orders") as log:
        log.append(b"one")
        log.append(b"two")
    with journal.open(tmp_path / "log", topic="orders") as reader:
        reader.commit_offset("billing", 1)
    (tmp_path / "hours" / "offsets").mkdir(parents=True)
    (tmp_path / "hours" / "offsets" / "7").write_text(
        'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}\n{"orders":2}')
    size(browser, 1120, 560)
    with Console(journals=[str(tmp_path / "log")], checkpoints=[str(tmp_path / "hours")],
                 control=True) as console:
        assert browser.open(console.url) == []
        shows(browser, "#status", ["Live"])
        shows(browser, "#view tbody", ["pub 1", "push 4", "customer", "ipc://"])
        # a second look has rates, so the page follows without a reload
        until(lambda: browser.run("document.querySelector('#total-out_rate .value').innerText")
              not in ("–", "0"), LIMIT)
        picture(browser, "console-sockets")
        click(browser, "#view-peers")
        shows(browser, "#view tbody", ["push"])
        click(browser, "#view-map")
        shows(browser, "#view svg", ["pub 1", "sub 1"])
        assert browser.run("document.querySelectorAll('#view path.edge').length") == 3
        click(browser, "#view-journals")
        assert "billing" in shows(browser, "#view tbody", ["orders", "billing"])
        click(browser, "#view-spark")
        shows(browser, "#view tbody", ["hours", '{"orders":2}'])
        click(browser, "#view-events")
        until(lambda: "Connected" in browser.run("document.querySelector('#view').textContent")
              or stranger(folder), LIMIT, 0.2)
        assert complaints(browser) == []
        assert console.counts["failed"] == console.counts["malformed"] == 0
    click(browser, "#pause")


@pytest.mark.slow
def test_a_message_is_sent_and_watched(browser, shop):
    size(browser, 900, 760)
    with Console(control=True) as console:
        browser.open(console.url)
        shows(browser, "#view tbody", ["rep 3"])
        open_socket(browser, "rep 3")
        shows(browser, "#view", ["Send a message"])
        browser.run("document.querySelector('#send textarea').value = 'bread?'")
        click(browser, "#send button")
        shows(browser, "#sent", ["Reply: 7.50"])
        press(browser, "Escape", 27)
        shows(browser, "#title", ["Sockets"])
        open_socket(browser, "pub 1")
        shows(browser, "#view", ["Watch messages"])
        click(browser, "#watch button")
        shows(browser, "#watched", ["news | fresh bread"])
        click(browser, "#explain")
        shows(browser, "#view pre", ["A pub socket"])
        picture(browser, "console-watch")
        assert complaints(browser) == []
    click(browser, "#pause")


def press_mouse(browser, what, count):
    """The count-th click of a double click."""
    x, y = json.loads(browser.run(f"""(() => {{ const one = document.querySelector(
        {json.dumps(what)}); one.scrollIntoView(); const at = one.getBoundingClientRect();
        return JSON.stringify([at.x + at.width / 2, at.y + at.height / 2]); }})()"""))
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left",
                     clickCount=count)


def watches(console):
    """How many were made, and those that are open."""
    with console._control._lock:
        return console._control._numbers, [*console._control._watches]


def test_a_double_click_watches_once(browser, shop):
    """Also one whose second click comes after the answer to the first."""
    with Console(control=True) as console:
        browser.open(console.url)
        shows(browser, "#view tbody", ["pub 1"])
        open_socket(browser, "pub 1")
        shows(browser, "#view", ["Watch messages"])
        browser.run("""(() => { const one = document.querySelector('#watch button');
            one.click(); one.click(); })()""")
        shows(browser, "#watched", ["news | fresh bread"])
        assert watches(console) == (1, [1])
        click(browser, "#watch button")
        shows(browser, "#watch button", ["Watch"])
        press_mouse(browser, "#watch button", 1)
        shows(browser, "#watch button", ["Stop"])
        press_mouse(browser, "#watch button", 2)
        assert browser.run("document.querySelector('#watch button').textContent") == "Stop"
        assert watches(console) == (2, [2])
        press_mouse(browser, "#watch button", 1)
        shows(browser, "#watch button", ["Watch"])
        until(lambda: watches(console) == (2, []), LIMIT)
        assert complaints(browser) == []
    click(browser, "#pause")


def test_leaving_a_socket_ends_a_watch_that_has_not_been_answered(browser, shop):
    with Console(control=True) as console:
        browser.open(console.url)
        shows(browser, "#view tbody", ["pub 1"])
        for number in (1, 2):
            open_socket(browser, "pub 1")
            shows(browser, "#view", ["Watch messages"])
            browser.run("""document.querySelector('#watch button').click();
                document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));""")
            until(lambda number=number: watches(console) == (number, []), LIMIT)
            shows(browser, "#title", ["Sockets"])
        open_socket(browser, "pub 1")
        shows(browser, "#view", ["Watch messages"])
        click(browser, "#watch button")
        shows(browser, "#watched", ["news | fresh bread"])
        assert complaints(browser) == []
    click(browser, "#pause")


def stranger(folder):
    """Connect and leave: events, if the console has subscribed by now. It may also come in time for
    the last of them only."""
    with mq.Context(monitor=False) as context, mq.Push(
            connect=f"ipc://{folder.parent}/pull", context=context, linger=0) as sock:
        sock.wait_peers(1, timeout=LIMIT)


def open_socket(browser, name):
    browser.run(f"""[...document.querySelectorAll('#view td button')].find(
        (one) => one.innerText === {json.dumps(name)}).click()""")


def test_without_control_nothing_is_offered(browser, shop):
    with Console() as console:
        browser.open(console.url)
        shows(browser, "#view tbody", ["rep 3"])
        open_socket(browser, "rep 3")
        shows(browser, "#view dl", ["high-water marks"])
        assert not browser.run("Boolean(document.querySelector('#send, #watch'))")
    click(browser, "#pause")


def test_a_socket_that_is_opened_again_has_its_endpoints(browser, shop):
    with Console() as console:
        browser.open(console.url)
        for _ in range(2):
            shows(browser, "#view tbody", ["rep 3"])
            open_socket(browser, "rep 3")
            shows(browser, "#view dl", ["high-water marks"])
            assert "bind ipc://" in browser.run("document.querySelector('#view ul').textContent")
            press(browser, "Escape", 27)
    click(browser, "#pause")


def test_components_of_one_name_have_a_row_each(browser, folder):
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            context = stack.enter_context(mq.Context(monitor=True))
            front, back = context.socket("router"), context.socket("dealer")
            front.bind("inproc://front")
            back.bind("inproc://back")
            stack.enter_context(mq.device(front, back))
        console = stack.enter_context(Console())
        browser.open(console.url)
        click(browser, "#view-components")
        for page in ("#view-sockets", "#view-components") * 2:      # each draws the table again
            click(browser, page)
            shows(browser, "#title", [page[6:].title()])
            shows(browser, "#view tbody", ["router 1"])
        until(lambda: console.counts["answered"] > 8, LIMIT)
        assert browser.run("document.querySelectorAll('#view tbody tr').length") == 2
    click(browser, "#pause")


@contextlib.contextmanager
def one_that_goes(browser):
    """A page with a PULL and a PUSH; the test closes the latter."""
    with mq.Context(monitor=True) as context, Console() as console, \
            mq.Pull(bind="inproc://stays", context=context):
        goes = mq.Push(connect="inproc://stays", context=context, linger=0)
        browser.open(console.url)
        shows(browser, "#view tbody", ["push"])
        yield console, goes


def test_the_keyboard_stays_in_the_table_when_its_row_goes(browser, folder):
    with one_that_goes(browser) as (_, goes):
        browser.run("""[...document.querySelectorAll('#view td button')].find(
            (one) => one.innerText.startsWith("push")).focus()""")
        goes.close()
        until(lambda: "push" not in browser.run(
            "document.querySelector('#view tbody').textContent"), LIMIT)
        assert browser.run("document.activeElement.type") == "search"
    click(browser, "#pause")


def test_a_damaged_secret_is_named(browser):
    with Console() as console:
        assert browser.open(f"{console.url}#x") == []
        shows(browser, "#status", ["The secret in the address is damaged"])


def test_a_message_that_is_too_long_is_refused_and_the_page_lives(browser, shop):
    size(browser, 900, 760)
    with Console(control=True) as console:
        browser.open(console.url)
        shows(browser, "#view tbody", ["pull 2"])
        open_socket(browser, "pull 2")
        shows(browser, "#view", ["Send a message"])
        for length, words in ((requests.LARGEST, ["Not sent", "too long"]), (10, ["Sent to"])):
            browser.run(f"document.querySelector('#send textarea').value = 'x'.repeat({length})")
            click(browser, "#send button")
            shows(browser, "#sent", words)
        assert complaints(browser) == []
        assert f"LARGEST = {requests.LARGEST};" in (FOLDER / "console.js").read_text()
    click(browser, "#pause")


def test_fast_clicks_turn_a_page_each(browser, folder):
    """Also those that come while an answer is under way, which has the page before."""
    size(browser, 1120, 560)
    with mq.Context(monitor=True) as context, contextlib.ExitStack() as stack:
        for number in range(requests.PAGE_ROWS * 3 + 1):
            stack.enter_context(mq.Pull(bind=f"inproc://{number}", context=context))
        console = stack.enter_context(Console())
        browser.open(console.url)
        shows(browser, "#view .tools", ["page 1 of 4"])
        browser.run("""(() => { const next = [...document.querySelectorAll('#view .tools button')]
            .find((one) => one.innerText === "Next"); next.click(); next.click(); })()""")
        shows(browser, "#view .tools", ["page 3 of 4"])
        browser.run("""(() => { const head = [...document.querySelectorAll('#view th button')]
            .find((one) => one.innerText === "program"); head.click(); head.click(); })()""")
        until(lambda: browser.run("""document.querySelector('#view th[data-sort=program]')
            .getAttribute("aria-sort")""") == "ascending", LIMIT)
        assert complaints(browser) == []
    click(browser, "#pause")


def test_a_socket_that_is_gone_shows_nothing_of_the_one_before(browser, folder):
    with one_that_goes(browser) as (console, goes):
        open_socket(browser, "pull 1")
        shows(browser, "#view tbody", ["push"])
        press(browser, "Escape", 27)
        shows(browser, "#view tbody", ["push"])
        click(browser, "#pause")        # so that the row stays
        goes.close()
        until(lambda: b'"push"' not in console._views.answer(b'{"op":"sockets"}'), LIMIT)
        open_socket(browser, "push 2")
        click(browser, "#pause")
        shows(browser, "#note", ["this socket is closed"])
        assert browser.run("document.querySelector('#title').textContent") == "push"
        assert not browser.run("document.querySelector('#view tbody').textContent")
        shows(browser, "#total-peers .value", ["0"])        # the totals go on
    click(browser, "#pause")


def test_a_page_beyond_the_limit_says_so(browser, folder):
    with mq.Context(monitor=False) as context, Console() as console:
        live = console._rep.endpoints[0].url
        pages = [mq.Req(connect=live, context=context, linger=0) for _ in range(PAGES)]
        for page in pages:
            page.wait_peers(1, timeout=LIMIT)
        browser.open(console.url)
        shows(browser, "#status", ["Not connected", f"serves {PAGES} pages at once"])
        assert f"PAGES = {PAGES};" in (FOLDER / "console.js").read_text()
        pages.pop().close()
        shows(browser, "#status", ["Live"])
        for page in pages:
            page.close()
    click(browser, "#pause")


def test_texts_of_an_adversary_stay_texts(browser, folder):
    nasty = "<img src=x onerror=alert(1)>\u202e</td><script>alert(2)</script>"
    size(browser, 1120, 560)
    with mq.Context(monitor=Publish(name=nasty)) as context, \
            mq.Pull(bind="inproc://x", context=context), Console() as console:
        assert browser.open(console.url) == []
        assert "<img src=x onerror=alert(1)>" in shows(browser, "#view tbody", ["pull 1"])
        click(browser, "#view-map")
        shows(browser, "#view svg", ["pull 1"])
        assert not browser.run("Boolean(document.querySelector('main img, main script'))")
        assert complaints(browser) == []
    click(browser, "#pause")


@pytest.mark.slow
def test_a_phone_and_the_keyboard(browser, shop):
    size(browser, 360, 740, dark=True)
    with Console() as console:
        assert browser.open(console.url) == []
        shows(browser, "#view tbody", ["pub 1"])
        assert browser.run("document.documentElement.scrollWidth") <= 360
        picture(browser, "console-phone")
        # Tab reaches the skip link first, then the buttons, then a socket, which Enter opens
        press(browser, "Tab", 9)
        assert browser.run("document.activeElement.id") == "skip"
        browser.run("document.querySelector('#view td button').focus()")
        browser.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r",
                     windowsVirtualKeyCode=13)
        shows(browser, "#view dl", ["high-water marks"])
        assert browser.run("document.activeElement.id") == "title"
        assert browser.run(CONTRAST) == []
        assert browser.run(UNNAMED) == []
        size(browser, 360, 740, dark=False)
        assert browser.run(CONTRAST) == []
    click(browser, "#pause")


# texts whose contrast with what is behind them is below WCAG's 4.5
CONTRAST = """(() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92
    : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => { for (let one = node; one; one = one.parentElement) {
    const color = rgb(getComputedStyle(one).backgroundColor);
    if (color.length === 3 || color[3] > 0) return color; } return [255, 255, 255]; };
  return [...document.querySelectorAll("body *")].filter((node) => node.offsetParent
    && [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim())).map((node) => {
      const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))];
      return [node.innerText, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
    }).filter(([, ratio]) => ratio < 4.5); })()"""
# controls without a name
UNNAMED = """[...document.querySelectorAll("button, input, textarea, a")].filter((one) =>
  !(one.innerText || one.getAttribute("aria-label") || one.closest("label"))).map(
  (one) => one.outerHTML)"""
