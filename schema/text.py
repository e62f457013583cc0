"""Numbers and names in words."""


def size(nbytes: int) -> str:
    """A number of bytes for people."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.2f} {unit}"
    return f"{nbytes} B"


def shown(name: str) -> str:
    """A name of a model in one line: line breaks, and what else could disturb a terminal, as Python's escapes."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
