"""The console in Chromium, at a server with the included models: what a person sees and does there.

`make try-console` runs it; without Playwright it is skipped.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.server_process import ROOT, ServerProcess, start

playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: make try-console")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: make try-console")

EXAMPLE = "The animal didn't cross the street because it was too tired."
SETTLED = "document.querySelector('.sentence:not(.is-pending)') && !document.querySelector('.is-pending, .is-busy')"
SHOTS = Path(os.environ.get("CONSOLE_SHOTS", ROOT / "build/console"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The included models, with their own engines."""
    runner = "service.engine.worker:create_runner"
    with start(None, tmp_path_factory.mktemp("server"), DRAGOMAN_ENGINE__RUNNER_FACTORY=runner) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any, server: ServerProcess) -> Iterator[Any]:
    """Opens the page; what it asks for elsewhere, and what it complains of, fails the test."""
    contexts, complaints = list[Any](), list[str]()

    def open_one(**options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1240, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
        page.on("request", lambda one: complaints.extend([] if _is_from_here(one.url, server) else [one.url]))
        page.goto(f"http://127.0.0.1:{server.http_port}/")
        page.wait_for_selector("#target-language option[value=de]", state="attached")
        page.select_option("#target-language", "de")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []


def _is_from_here(url: str, server: ServerProcess) -> bool:
    return url.startswith((f"http://127.0.0.1:{server.http_port}/", "blob:"))


def write(page: Any, text: str) -> None:
    page.fill("#source", text)
    until(page, f"{SETTLED} && document.getElementById('status').textContent")


def assert_no_serious_finding(page: Any) -> None:
    found = axe.Axe().run(page).response["violations"]
    serious = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
    assert serious == []


def until(page: Any, expression: str) -> None:
    """Return when this is true; Playwright's own way to wait needs `eval`, which the page forbids."""
    for _ in range(600):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")


def shot(page: Any, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def test_typing_translates_detects_the_language_and_shows_quality_and_times(open_page):
    page = open_page()

    page.type("#source", "Good morning. How are you?", delay=15)
    page.wait_for_selector("#sentences li:nth-child(2)")

    assert page.inner_text("#source-language option:checked") == "English (detected)"
    assert "Guten Morgen" in page.inner_text("#output")
    assert page.locator("#sentences meter").count() == 2
    assert page.inner_text("#timings dd:last-child >> nth=-1").endswith(" ms")
    assert page.inner_text("#made-by").startswith("Made by en-de")
    until(page, "Number(document.getElementById('live-rows').textContent) >= 0")


def test_text_is_shown_as_text_whatever_is_in_it(open_page):
    page = open_page()

    write(page, '<img src=x onerror="document.title=1"> <script>document.title=2</script> Hello there.')

    assert page.title() == "Dragoman"
    assert page.locator("#output img, #output script, #sentences img").count() == 0


def test_what_is_typed_later_cancels_what_is_stale(open_page, server):
    def cancelled() -> float:
        return float(server.metric("dragoman_requests_total", method="console/translate", code="CANCELLED"))

    page = open_page()
    before = cancelled()
    page.fill("#source", " ".join(f"This long sentence has the number {number} and goes on." for number in range(40)))
    page.wait_for_selector(".is-pending")
    write(page, "Hello.")

    assert cancelled() == before + 1
    assert page.locator(".sentence").count() == 1
    until(page, "document.getElementById('live-rows').textContent === '0'")


def test_a_word_offers_alternatives_and_the_chosen_one_goes_on(open_page):
    page = open_page()
    write(page, "The animal did not cross the street.")
    before = page.inner_text("#output")

    page.click(".word >> nth=2")
    page.click("#alternatives [data-text] >> nth=0")
    page.wait_for_selector(".sentence.is-chosen")

    after = page.inner_text("#output")
    assert after != before
    assert after.split()[:2] == before.split()[:2]
    assert "an alternative that you chose" in page.inner_text("#sentences")
    page.wait_for_selector("#sentences button")  # it has links again


def test_words_that_belong_together_light_up(open_page):
    page = open_page()
    write(page, EXAMPLE)

    page.hover(".word:text-is('Tier')")
    assert page.inner_text("#mirror mark") == "animal"
    page.mouse.move(0, 0)
    assert page.locator("#mirror mark").count() == 0
    page.focus("#source")
    page.keyboard.press("Control+Home")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert page.inner_text(".word.is-linked") == "Tier"


def test_heat_map_shows_what_it_looks_at(open_page):
    page = open_page()
    write(page, EXAMPLE)

    page.click("#sentences button")
    page.wait_for_selector("#heat td[data-row]")

    assert "“it” looks at “animal”" in page.inner_text("#heat-text")
    assert page.locator("#heads button").count() == 6 * 8
    page.click("text=Source to translation")
    assert page.locator("#heads button").count() == 2 * 8
    page.click("#heads button >> nth=3")
    assert page.inner_text("#heat caption").startswith("Layer 1, head 4")
    page.click("text=Encoder")
    page.mouse.move(0, 0)
    shot(page, "console")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [("page.html", "<p>Good <b>morning</b>.</p>", "<p>Guten <b>Morgen</b>"), ("note.txt", "Hello.", "Hallo")],
)
def test_dropped_texts_are_translated_in_the_page(open_page, name, content, expected):
    page = open_page()
    drop(page, name, content)
    until(page, "document.getElementById('output').textContent.length > 3")
    page.wait_for_selector("#progress:not(.is-busy)", state="attached")

    assert page.inner_text("#output").startswith(expected)
    assert page.is_checked("#is-html") is name.endswith("html")


def test_dropped_document_comes_back_as_a_file(open_page):
    page = open_page()
    page.select_option("#source-language", "en")

    drop(page, "film.srt", "1\n00:00:01,000 --> 00:00:02,000\nGood morning.\n")
    with page.expect_download() as downloading:
        page.click("#download")

    assert downloading.value.suggested_filename == "film.de.srt"
    assert Path(downloading.value.path()).read_text().startswith("1\n00:00:01,000 --> 00:00:02,000\nGuten Morgen")


def test_document_can_be_stopped_and_its_warnings_are_listed(open_page, server):
    def cancelled() -> float:
        return float(server.metric("dragoman_requests_total", method="console/document", code="CANCELLED"))

    page, before = open_page(), cancelled()
    page.select_option("#source-language", "en")
    drop(page, "long.md", "\n\n".join(f"The sentence number {n} is long, and nobody reads it." for n in range(400)))
    page.wait_for_selector("#stop:not([hidden])")
    page.click("#stop")
    until(page, "document.getElementById('status').textContent === 'long.md is not translated'")
    while cancelled() == before:
        page.wait_for_timeout(50)

    assert page.is_hidden("#stop")
    assert page.is_hidden("#notice")
    page.select_option("#source-language", "")
    drop(page, "other.md", "Il treno è in ritardo di nuovo, e nessuno sa perché.\n")
    page.wait_for_selector("#report:not([hidden])")
    assert page.locator("#report-lines li").count() >= 1
    assert_no_serious_finding(page)


def drop(page: Any, name: str, content: str) -> None:
    page.evaluate(
        """([name, content]) => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([content], name));
            const pane = document.getElementById("source").closest(".pane");
            pane.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
        }""",
        [name, content],
    )


def test_everything_can_be_done_with_the_keyboard(open_page):
    page = open_page()
    press = page.keyboard.press
    page.focus("#source")
    page.keyboard.insert_text("The animal did not cross the street.")
    page.wait_for_selector(".word")
    before = page.inner_text("#output")

    until_focused(page, "#output .word")
    press("ArrowRight")
    press("ArrowRight")
    assert page.evaluate("document.querySelector('#mirror mark') !== null")
    press("Enter")
    page.wait_for_selector("#alternatives [data-text]")
    press("Escape")
    assert page.evaluate("document.activeElement.className") == "word"
    press("Enter")
    page.wait_for_selector("#alternatives [data-text]")
    press("ArrowDown")
    press("Enter")
    page.wait_for_selector(".sentence.is-chosen")
    assert page.inner_text("#output") != before
    until_focused(page, "#sentences button")
    press("Enter")
    page.wait_for_selector("#heat td[data-row]")
    until_focused(page, "#heads button")
    caption = page.inner_text("#heat caption")
    press("ArrowRight")
    assert page.inner_text("#heat caption") != caption


def until_focused(page: Any, selector: str) -> None:
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            return
    raise AssertionError(f"the Tab key does not lead to {selector}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1240])
def test_page_fits_and_is_accessible_in_every_look(open_page, scheme, width):
    page = open_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    write(page, EXAMPLE)
    page.click("#sentences button")
    page.wait_for_selector("#heat td[data-row]")

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert_no_serious_finding(page)
    shot(page, f"{scheme}-{width}")
    page.click(".word >> nth=1")
    page.wait_for_selector("#alternatives [data-text]")
    assert_no_serious_finding(page)
    page.keyboard.press("Escape")
    page.click("#open-card")
    until(page, "document.getElementById('card').textContent.includes('# en-de')")
    assert_no_serious_finding(page)
