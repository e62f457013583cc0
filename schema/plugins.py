"""What other packages add to mnnx: modules that entry points name, which register ops, executions and importers as they are loaded.

    [project.entry-points."mnnx.ops"]
    median = "my_package.median"

The group mnnx.ops is loaded where a model asks for an op that mnnx doesn't have, the group mnnx.importers, too, where one is converted.
"""

from __future__ import annotations

import threading
from functools import cache

from mnnx.schema.log import log

_LOCK = threading.RLock()


def load(group: str) -> None:
    """Loads the entry points of a group, once in a process. One that can't be loaded gives a warning."""
    with _LOCK:
        _load(group)


@cache
def _load(group: str) -> None:
    from importlib.metadata import entry_points

    for entry in entry_points(group=group):
        try:
            entry.load()
        except Exception as error:  # whatever a foreign module raises
            log().warning("the entry point %s = %r of the group %s can't be loaded: %s", entry.name, entry.value, group, error)
