"""Takes the documents' pictures of the playground, in a real browser at a real gateway."""

import argparse
import io
import shutil
import tempfile
import time
from pathlib import Path

from PIL import Image

from serving.exports.store import PIN, complete_versions
from tests.serving.browser import Browser
from tests.serving.processes import GatewayProcess

ROWS = "return document.querySelectorAll('{} li').length"
BESIDE = """const beside = document.getElementById("beside"); beside.value = "{}";
            beside.dispatchEvent(new Event("input", {{bubbles: true}}))"""


def take(export_dir: Path, output: Path, folder: Path) -> None:
    """Three pictures of the two highest versions in an export directory, by way of a copy in `folder`."""
    export = folder / "export"
    shutil.copytree(export_dir, export)
    before, newest = complete_versions(str(export))[-2:]
    (export / PIN).write_text(str(before))
    with GatewayProcess(export) as gateway:
        gateway.wait_until_ready()
        (export / PIN).unlink()
        while gateway.http.get("/readyz").json()["model"]["version"] != newest:
            time.sleep(0.1)
        for name, scheme in (("playground.png", "light"), ("playground-versions.png", "dark")):
            with Browser(folder / name, 1280, 1100) as browser:
                browser.prefer(scheme)
                browser.open(f"{gateway.address}/")
                browser.wait_for(ROWS.format("#results"))
                if scheme == "dark":
                    browser.run(BESIDE.format(before))
                    browser.wait_for(ROWS.format("#results-beside"))
                save(browser, output / name)
        with Browser(folder / "phone") as browser:
            browser.prefer("light")
            browser.be_phone()
            browser.open(f"{gateway.address}/")
            browser.wait_for(ROWS.format("#results"))
            browser.run("document.querySelector('section').scrollIntoView()")
            save(browser, output / "playground-phone.png")


def save(browser: Browser, path: Path) -> None:
    """As a picture of 128 colours, which is a third of the bytes."""
    shown = Image.open(io.BytesIO(browser.screenshot())).convert("RGB")
    shown.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.serving.pictures", description=__doc__)
    parser.add_argument("--export-dir", required=True, type=Path, help="an export directory with two versions")
    parser.add_argument("--output", required=True, type=Path, help="the pictures' directory")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        take(given.export_dir, given.output, Path(folder))


if __name__ == "__main__":
    main()
