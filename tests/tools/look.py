"""Look at built pages in a headless Chromium: links, images, and the search.

``python tests/tools/look.py doc/_build/html`` prints what is wrong and fails if there
is anything; ``--shots DIR`` also takes pictures of the main pages. The pages are served
on a port of this machine, with one more page whose script opens all others in a frame:
what it sees is what a browser sees, after scripts have run.
"""

import argparse
import functools
import http.server
import json
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

SCRIPT = """
<body><script>
const pages = PAGES, frame = document.createElement("iframe");
frame.style = "width: 1200px; height: 900px";
document.body.append(frame);
const asked = new Map();
const there = url => {
  if (!asked.has(url)) asked.set(url, fetch(url).then(r => r.ok, () => false));
  return asked.get(url);
};
const open = url => new Promise(done => {
  frame.onload = done;
  frame.src = url;
});
const wait = ms => new Promise(done => setTimeout(done, ms));
async function look() {
  const wrong = [];
  const targets = [];
  const anchors = new Map();
  let images = 0, links = 0;
  for (const page of pages) {
    await open("/" + page);
    const seen = frame.contentDocument;
    anchors.set(new URL("/" + page, location).pathname,
                new Set([...seen.querySelectorAll("[id]")].map(e => e.id)));
    for (const image of seen.images) {
      images += 1;
      image.loading = "eager";
      try { await image.decode(); } catch {}
      const name = image.getAttribute("src");
      if (!image.naturalWidth) wrong.push(`${page}: image ${name}`);
    }
    for (const link of seen.querySelectorAll("a[href]")) {
      const url = new URL(link.href);
      if (url.origin !== location.origin) continue;
      links += 1;
      targets.push([page, url.pathname, decodeURIComponent(url.hash.slice(1))]);
    }
  }
  for (const [page, path, id] of targets) {
    if (!await there(path)) wrong.push(`${page}: link to ${path}`);
    else if (id && anchors.has(path) && !anchors.get(path).has(id))
      wrong.push(`${page}: link to ${path}#${id}`);
  }
  await open("/search.html?q=QUERY");
  let found = 0;
  for (let k = 0; k < 100 && !found; k++) {
    await wait(100);
    found = frame.contentDocument.querySelectorAll("#search-results li").length;
  }
  if (!found) wrong.push("search.html: nothing found for QUERY");
  return {pages: pages.length, images, links, found, wrong};
}
look().catch(error => ({wrong: [String(error.stack)]})).then(
  found => fetch("/found", {method: "POST", body: JSON.stringify(found)}));
</script>
"""
SHOTS = (
    "index.html",
    "comparison.html",
    "paper.html",
    "auto_examples/index.html",
    "auto_examples/plot_tour.html",
    "generated/sklearn_awsgd.AWSGDClassifier.html",
    "sampling.html",
)


# Seconds to wait for an answer.
LONGEST = 600


def chromium():
    """Return the path of a Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


class Pages(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and the page that looks at the others, without a log.

    What that page has found, it posts; it is put into the queue `answers`.
    """

    def __init__(self, *args, script, answers, **keywords):
        self.script, self.answers = script, answers
        super().__init__(*args, **keywords)

    def do_GET(self):
        if self.path != "/look-at-all":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        return self.wfile.write(self.script.encode())

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()
        self.answers.put(json.loads(body))

    def log_message(self, *arguments):
        pass


@contextmanager
def browser(address, *options):
    """Open an address in a Chromium that ends with the block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        fixed = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        fixed += ["--no-first-run", "--disable-background-networking"]
        fixed += [f"--user-data-dir={profile}", *options]
        process = subprocess.Popen(
            [chromium(), *fixed, address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def look(folder, query="sampler", shots=None):
    """Return what was seen on the pages of a folder, a dict with a list `wrong`."""
    pages = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.html"))
    pages = [page for page in pages if not page.startswith("_static")]
    script = SCRIPT.replace("PAGES", json.dumps(pages)).replace("QUERY", query)
    answers = queue.Queue()
    handler = functools.partial(
        Pages, directory=str(folder), script=script, answers=answers
    )
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        # A port to debug it keeps the browser open until it is killed.
        with browser(f"{address}/look-at-all", "--remote-debugging-port=0"):
            found = answers.get(timeout=LONGEST)
        for page in SHOTS if shots else ():
            name = page.replace("/", "-").removesuffix(".html") + ".png"
            options = [f"--screenshot={shots / name}", "--window-size=1300,1600"]
            options += ["--virtual-time-budget=60000"]
            with browser(f"{address}/{page}", *options) as process:
                process.wait(LONGEST)
    finally:
        server.shutdown()
        server.server_close()
    return found


def main():
    """Look, print, and fail if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shots", type=Path)
    options = parser.parse_args()
    found = look(options.folder, shots=options.shots)
    print(json.dumps(found, indent=1))
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()
