"""Writes pictures of all pages to a folder, in light and dark, at 390 and 1,400 pixels: `pictures.py PROGRAM FOLDER`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import replay
from scene import Scene
from webdriver import wait_until

PAGES = {
    "overview": "",
    "limit": "limit/shop/all",
    "client-limit": "limit/api/per-key",
    "route": "route/shop",
    "store": "store",
    "overrides": "overrides",
    "explain": "explain",
}


def main() -> None:
    program, folder = sys.argv[1], Path(sys.argv[2])
    only = set(sys.argv[3:])
    folder.mkdir(parents=True, exist_ok=True)
    with Scene(Path(program)) as scene:
        browser = scene.browser
        scene.show()
        for width in (390, 1400):
            browser.resize(width)
            browser.screenshot(folder / f"empty-{width}-light.png", width)
        browser.open(replay.write(scene).as_uri())
        for scheme in ("light", "dark"):
            browser.scheme(scheme)
            for width in (390, 1400):
                browser.resize(width)
                browser.screenshot(folder / f"replay-{width}-{scheme}.png", width)
        if only == {"replay"}:
            return
        browser.scheme("light")
        scene.start_load()
        time.sleep(25)  # for charts with a curve
        for name, page in PAGES.items():
            if only and name not in only:
                continue
            scene.show(page)
            if name == "explain":
                browser.click("form button.primary")
            time.sleep(1.5)
            for scheme in ("light", "dark"):
                browser.scheme(scheme)
                for width in (390, 1400):
                    browser.resize(width)
                    browser.screenshot(folder / f"{name}-{width}-{scheme}.png", width)
        browser.scheme("light")
        scene.show()
        scene.redis.terminate()
        wait_until("the outage", lambda: "does not decide" in browser.text("#alerts"))
        for scheme in ("dark", "light"):
            browser.scheme(scheme)
            for width in (390, 1400):
                browser.resize(width)
                browser.screenshot(folder / f"outage-{width}-{scheme}.png", width)
        scene.gateway.process.kill()
        wait_until("the loss", lambda: "does not respond" in browser.text("#alerts"), 20)
        browser.screenshot(folder / "lost-1400-light.png", 1400)


if __name__ == "__main__":
    main()
