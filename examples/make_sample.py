"""Draws sample.png, the picture that the examples read: lines of several sizes, one on a dark ground, one slightly rotated.

python examples/make_sample.py
"""

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

PAPER, INK = (244, 240, 228), (32, 36, 48)
LINES = [  # x, y, size, colour, text
    (48, 36, 54, INK, "Small machines read"),
    (48, 118, 30, (120, 40, 40), "One file, no framework, no compiler"),
    (48, 176, 22, INK, "Order 20417: 3 sensors, 2 cameras, 1 display"),
    (48, 214, 22, INK, "Total 1,284.50 EUR, due 2031-05-17"),
]


def draw_sample() -> Image.Image:
    """The picture, 800×480 RGB."""
    picture = Image.new("RGB", (800, 480), PAPER)
    draw = ImageDraw.Draw(picture)
    for x, y, size, colour, text in LINES:
        draw.text((x, y), text, colour, ImageFont.load_default(size))
    draw.rectangle((48, 268, 420, 330), (24, 60, 92))
    draw.text((64, 280), "GATE B7 - OPEN", (240, 250, 255), ImageFont.load_default(34))
    note = Image.new("RGB", (360, 60), PAPER)
    ImageDraw.Draw(note).text((14, 10), "handle with care", (20, 90, 50), ImageFont.load_default(36))
    picture.paste(note.rotate(7, Image.Resampling.BICUBIC, expand=True, fillcolor=PAPER), (400, 340))
    draw.text((48, 400), "north 51.4779", INK, ImageFont.load_default(26))
    return picture


if __name__ == "__main__":
    draw_sample().save(Path(__file__).with_name("sample.png"), optimize=True)
