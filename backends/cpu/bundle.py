"""Makes kernel bundles (see kernel_bundles.py), and reads what is in one without running any of it."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mnnx.backends.cpu.elf import section
from mnnx.backends.cpu.kernel import ABI, Kernel, object_code
from mnnx.backends.cpu.linker import link
from mnnx.backends.cpu.target import Target
from mnnx.errors import BackendError

_SECTION = ".mnnx.index"


def build(kernels: Sequence[Kernel], target: Target, output: Path, progress: Callable[[int, int], None] = lambda done, count: None) -> int:
    """Writes a bundle of kernels for a target, and returns how many had to be compiled. `progress(done, count)` is told of each.

    Raises BackendError where a kernel can't be compiled, or where there is no linker for the target.
    """
    objects, compiled = [], 0
    for done, item in enumerate(kernels):
        progress(done, len(kernels))
        code, new = object_code(item, target)
        objects.append(code)
        compiled += new
    progress(len(kernels), len(kernels))
    index = {
        "target": target.name,
        "level": target.level.name,
        "tune": target.tune,
        "abi": ABI,
        "made_with": {name: importlib.metadata.version(name) for name in ("mnnx", "numba", "llvmlite")},
        "kernels": {item.identity(target.level): [item.name, dict(item.parameters)] for item in kernels},
    }
    link([*objects, _index_object(json.dumps(index).encode(), target)], output, target.arch)
    return compiled


def read_index(path: Path) -> dict[str, Any]:
    """What `build` wrote: target, level, tune, abi, made_with, and kernels: identity → [name, parameters]. Raises BackendError, OSError."""
    data = section(path.read_bytes(), _SECTION)
    if data is None:
        raise BackendError(f"{path} is no kernel bundle")
    try:
        return json.loads(data)
    except ValueError as error:
        raise BackendError(f"the kernel bundle {path} is damaged: {error}") from error


def _index_object(text: bytes, target: Target) -> bytes:
    """An object file whose only content is a section with the text."""
    import llvmlite.binding as llvm
    from llvmlite import ir

    module = ir.Module("index")
    value = ir.Constant(ir.ArrayType(ir.IntType(8), len(text)), bytearray(text))
    index = ir.GlobalVariable(module, value.type, "mnnx_index")
    index.initializer, index.global_constant, index.section = value, True, _SECTION
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(reloc="pic")
    return machine.emit_object(llvm.parse_assembly(str(module)))
