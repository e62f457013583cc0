"""Writes the table of passes in docs/converter.md: python -m mnnx.converter.passes.documentation"""

from __future__ import annotations

import re
from pathlib import Path

from mnnx.converter.passes import list_passes

PAGE = Path(__file__).parents[2] / "docs" / "converter.md"
_HEAD = "| pass | level | what it does |\n| --- | --- | --- |\n"


def page(text: str) -> str:
    """The text of the page with the table as it should be."""
    rows = "".join(f"| {one.name} | {one.level} | {one.description()} |\n" for one in list_passes())
    return re.sub(re.escape(_HEAD) + r"(\|.*\n)*", lambda _: _HEAD + rows, text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
