#!/usr/bin/env python3
"""The page that `duet profile --html` writes, opened in a real browser: what it shows equals the JSON, names
cannot break it, it works by keyboard, and it does not overflow a narrow window. Skipped, with exit 77, where
there is no Chromium.

    profile_page_test.py DUET [TEST...]
"""
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

DUET = sys.argv[1]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
HOSTILE = "a</script><script>document.title='owned'</script><!--<img src=x onerror=\"document.title='owned'\">"
MODEL = ["--n_layer=3", "--n_head=2", "--n_embd=32", "--block_size=32", "--vocab_size=64", "--batch_size=4",
         f"--out_dir={HOSTILE}"]

# Uses the page as a person does, and notes what came of it.
USE = """<script>{
const byId = (id) => document.getElementById(id), note = document.body.dataset;
const press = (e, key) => e.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
const lines = () => byId("tree").tBodies[0].rows.length;
const first = (key) => [...byId("tree").tBodies[0].rows].map((r) => r.cells[0].textContent).join();
document.body.style.width = "480px";  // the browser's window has a least width, which is more
note.beyond = [...document.querySelectorAll("main *")].filter((e) => e.parentElement.closest(".wide") === null &&
  e.getBoundingClientRect().right > 480.5).map((e) => e.id || e.tagName).join();
byId("depth").value = 1; byId("depth").dispatchEvent(new Event("change"));
note.folded = lines();
byId("depth").value = byId("depth").lastChild.value; byId("depth").dispatchEvent(new Event("change"));
note.unfolded = lines();
const fold = byId("tree").querySelector(".fold"); fold.focus();
press(fold, "ArrowLeft"); note.closed = lines();
press(document.activeElement, "ArrowRight"); note.opened = lines();
const title = byId("tree").querySelector("[data-key=at_peak_bytes] button");
title.click(); note.sorted = title.parentElement.getAttribute("aria-sort");
note.order = [...byId("tree").tBodies[0].rows].filter((r) => r.getAttribute("aria-level") === "2")
  .map((r) => r.cells[1].dataset.bytes).join();
const line = byId("timeline");
press(line, "Home"); note.home = line.getAttribute("aria-valuenow"); note.homeText = line.getAttribute("aria-valuetext");
press(line, "ArrowRight"); note.next = line.getAttribute("aria-valuenow");
press(line, "p"); note.peak = line.getAttribute("aria-valuenow");
const blocks = byId("map").querySelector("canvas");
press(blocks, "End"); note.block = blocks.getAttribute("aria-valuenow"); note.tip = byId("tip").textContent;
}</script></body>"""


class Page(html.parser.HTMLParser):
    """Elements by id: their attributes and text; every tag; the page's title."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.tags, self.body, self.open, self.title = {}, [], {}, [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        if tag == "body":
            self.body = attributes
        if tag in ("meta", "link", "img", "input", "br", "hr"):
            return
        self.open.append((tag, attributes.get("id")))
        if attributes.get("id"):
            self.ids[attributes["id"]] = {"text": "", **attributes}

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, text):
        for tag, name in self.open:
            if name:
                self.ids[name]["text"] += text
            elif tag == "title":
                self.title += text

    def bytes(self, name):
        return int(self.ids[name]["data-bytes"])


class ProfilePage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = Path(tempfile.mkdtemp(prefix="duet_page_"))
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)

    def profile(self, name, *flags):
        """What `duet profile` wrote: the JSON, and the page as the browser has it after its script ran."""
        page, data = self.dir / f"{name}.html", self.dir / f"{name}.json"
        done = subprocess.run([DUET, "profile", *MODEL, *flags, f"--html={page}", f"--json={data}"], text=True,
                              capture_output=True, env=dict(os.environ, OMP_WAIT_POLICY="passive"))
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(data.read_text()), page.read_text()

    def open(self, text, width):
        page = self.dir / "opened.html"
        page.write_text(text)
        done = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
             f"--user-data-dir={tempfile.mkdtemp(dir=self.dir)}", f"--window-size={width},1200",
             "--virtual-time-budget=2000", "--dump-dom", page.as_uri()],
            capture_output=True, text=True, timeout=300, env=dict(os.environ, HOME=str(self.dir)))
        self.assertEqual(done.returncode, 0, done.stderr)
        said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        self.assertEqual(said, [])  # neither an error of the script nor anything refused
        return Page(done.stdout)

    def check(self, data, page):
        peak = data["peak_bytes"]
        self.assertEqual(page.bytes("total-peak"), peak)
        self.assertEqual(page.bytes("total-reserved"), data["peak_reserved_bytes"])
        self.assertEqual(page.bytes("total-unattributed"), data["unattributed_bytes"])
        self.assertEqual(page.bytes("total-owners"), sum(o["bytes"] for o in data["owners"]))
        self.assertEqual(page.bytes("total-owners"), peak)
        self.assertEqual(page.bytes("own-bytes"), peak)
        self.assertEqual(page.bytes("highest"), max(sum(p[1:6]) for p in data["points"]))
        self.assertEqual(page.bytes("highest"), peak)
        top = data["points"][data["peak_point"]]
        for kind in range(5):
            self.assertEqual(page.bytes(f"peak-{kind}"), top[1 + kind])
        blocks = [b for s in data["map"] for b in s["blocks"]]
        self.assertEqual(page.bytes("total-map-live"), sum(b[0] for b in blocks if not b[1]))
        self.assertEqual(page.bytes("total-map-live"), peak)
        self.assertEqual(page.bytes("total-map-free"), sum(b[0] for b in blocks if b[1]))
        self.assertEqual(page.bytes("total-map"), sum(s["bytes"] for s in data["map"]))
        self.assertNotIn("owned", page.title)
        self.assertNotIn("img", page.tags)
        self.assertIn(HOSTILE.replace('"', '\\"'), page.ids["config"]["text"])

    def test_measured(self):
        data, text = self.profile("measured")
        embedded = re.search(r'<script id="profile-data" type="application/json">(.*?)</script>', text, re.S)
        self.assertEqual(json.loads(embedded[1]), data)
        page = self.open(text, 1400)
        self.check(data, page)
        self.assertEqual(page.bytes("total-process"), data["process"]["peak_bytes"])
        self.assertRegex(page.ids["step"]["text"], r"\d ms$")

    def test_planned_in_use(self):
        data, text = self.profile("planned", "--plan")
        page = self.open(text.replace("</body>", USE), 480)
        self.check(data, page)
        self.assertNotIn("total-process", page.ids)
        self.assertNotIn("step", page.ids)
        self.assertNotRegex(page.ids["tree"]["text"], r"\d ms")
        note = {key.removeprefix("data-"): value for key, value in page.body.items()}
        number = {key: int(note[key]) for key in note if note[key].isdigit()}
        self.assertEqual(note["beyond"], "")
        self.assertLess(number["folded"], number["unfolded"])
        self.assertEqual((number["closed"], number["opened"]), (1, number["unfolded"]))
        self.assertEqual(note["sorted"], "descending")
        order = list(map(int, note["order"].split(",")))
        self.assertEqual(order, sorted(order, reverse=True))
        self.assertEqual(sum(order), data["peak_bytes"])
        self.assertEqual((number["home"], number["next"], number["peak"]), (1, 2, data["peak_point"] + 1))
        self.assertIn("live", note["home-text"])
        self.assertEqual(number["block"], len(data["map"][0]["blocks"]))
        self.assertIn("bytes)", note["tip"])


if __name__ == "__main__":
    if BROWSER is None:
        print("skipped: no Chromium on this machine (Debian's package chromium)")
        sys.exit(77)
    unittest.main(argv=sys.argv[1:])
