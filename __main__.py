"""`python -m mnnx …` is the command `mnnx …`."""

from mnnx.tools.main import main

main()
