"""PyTorch modules, through PyTorch's own ONNX exporter.

A module is exported to an ONNX file in a folder of its own, with its weights as external data, so that there is no limit of 2 GiB, and
read back from there. torch is imported nowhere here: whoever has a module has imported it.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mnnx.errors import ConversionError

#: Colours that torch puts into its messages.
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class ExportOptions:
    """How to export a module; all but the names are torch's own.

    example_inputs: a tensor, a tuple or list of what `forward` takes by position, or a dict of what it takes by name; NumPy arrays stand
    for tensors. dynamic_shapes: as of torch.export.export. input_names, output_names: in their order; without, inputs are called as
    `forward` calls them, and outputs by their keys where it returns a dict, else "output", or "output_0", "output_1", …
    """

    example_inputs: Any = None
    dynamic_shapes: Any = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None


def is_module(source: Any, options: ExportOptions) -> bool:
    """Whether it is a torch.nn.Module or a torch.export.ExportedProgram. Raises ConversionError for options of these on another source,
    and for names that can't be."""
    torch = sys.modules.get("torch")
    if torch is not None and (isinstance(source, torch.nn.Module) or _is_program(source)):
        _check_names(options)
        return True
    if given := [name for name, value in vars(options).items() if value is not None]:
        missing = "" if importlib.util.find_spec("torch") else ", and PyTorch isn't installed: pip install torch onnxscript"
        raise ConversionError(
            f"{', '.join(given)} are for a source that is a torch.nn.Module; this one is a {type(source).__name__}{missing}"
        )
    return False


def _check_names(options: ExportOptions) -> None:
    given: list[str] = []
    for what, names in (("input_names", options.input_names), ("output_names", options.output_names)):
        if names is not None and (isinstance(names, str) or not all(isinstance(name, str) for name in names)):
            raise ConversionError(f"{what} must be a list of names, not {names!r}")
        given += names or ()
    for name in given:
        if given.count(name) > 1:
            raise ConversionError(f"the name {name!r} is given to two inputs or outputs")


def name_of(module: Any) -> str:
    return type(module).__name__


@contextmanager
def exported(module: Any, options: ExportOptions) -> Iterator[Path]:
    """The ONNX file of a module, in evaluation mode; it is there as long as the context is.

    The modes (training or evaluation) of the module and its parts are put back. Raises ConversionError with what torch says where it
    can't export the module, or where a package that it needs is missing.
    """
    args, kwargs = _arguments(module, options.example_inputs)
    with tempfile.TemporaryDirectory(prefix="mnnx-") as folder:
        path = Path(folder) / "model.onnx"
        try:
            with _evaluating(module):
                _export(module, args, kwargs, options, path)
        except ConversionError:
            raise
        except ModuleNotFoundError as error:
            raise ConversionError(
                f"PyTorch's ONNX exporter needs the package {error.name}, which isn't installed: pip install {error.name}"
            ) from error
        except Exception as error:  # whatever the module's own code, or torch, raises
            raise ConversionError(f"PyTorch can't export the module {name_of(module)} to ONNX: {_reason(error)}") from error
        yield path


def _is_program(source: Any) -> bool:
    program = getattr(getattr(sys.modules["torch"], "export", None), "ExportedProgram", None)
    return program is not None and isinstance(source, program)


def _arguments(module: Any, example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What `forward` is called with: by position, by name."""
    if _is_program(module):
        if example is not None:
            raise ConversionError("example_inputs are for a module; an ExportedProgram has those that it was exported with")
        return (), {}
    if example is None:
        raise ConversionError(
            f"converting the module {name_of(module)} needs example_inputs: a tensor, or a tuple or dict of what its forward takes"
        )
    if isinstance(example, Mapping):
        return (), {name: _tensor(value) for name, value in example.items()}
    if isinstance(example, (tuple, list)):
        return tuple(map(_tensor, example)), {}
    return (_tensor(example),), {}


def _tensor(value: Any) -> Any:
    return sys.modules["torch"].as_tensor(value) if isinstance(value, np.ndarray) else value


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    if _is_program(module):
        yield
        return
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def _export(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: ExportOptions, path: Path) -> None:
    torch = sys.modules["torch"]
    scripted = isinstance(module, torch.jit.ScriptModule)
    names = {"input_names": _names(options.input_names), "output_names": _names(options.output_names)}
    if scripted or "dynamo" not in inspect.signature(torch.onnx.export).parameters:
        _export_traced(torch, module, args, kwargs, options, path, scripted)
        return
    program = torch.onnx.export(module, args, kwargs=kwargs, dynamic_shapes=options.dynamic_shapes, **names, dynamo=True, verbose=False)
    _name(program, options)
    program.save(str(path), external_data=True)


def _export_traced(
    torch: Any, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: ExportOptions, path: Path, scripted: bool
) -> None:
    """By the older exporter, for scripted modules and for PyTorch before 2.5."""
    if options.dynamic_shapes is not None:
        why = f"{name_of(module)} is scripted: give the module itself" if scripted else f"this is {torch.__version__}"
        raise ConversionError(f"dynamic_shapes need torch.export, of PyTorch 2.5 or newer; {why}")
    input_names = _names(options.input_names) or [*_parameters(module)[: len(args)], *kwargs]
    choice = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    torch.onnx.export(
        module, (*args, kwargs), str(path), input_names=input_names, output_names=_names(options.output_names), verbose=False, **choice
    )


def _parameters(module: Any) -> list[str]:
    """What `forward` calls its arguments; that of a traced module has a schema, but no signature."""
    schema = getattr(module.forward, "schema", None)
    return list(inspect.signature(module.forward).parameters) if schema is None else [one.name for one in schema.arguments[1:]]


def _names(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)


def _name(program: Any, options: ExportOptions) -> None:
    """Calls inputs and outputs as the module does, in place of the names that the exporter made up, where none are given."""
    graph = program.model.graph
    for what, wanted, values in (("input_names", options.input_names, graph.inputs), ("output_names", options.output_names, graph.outputs)):
        if wanted is not None and len(wanted) > len(values):
            raise ConversionError(f"{what} has {len(wanted)} names, the module has {len(values)}: {', '.join(v.name for v in values)}")
    given = [value.name for value in graph.inputs]
    if options.input_names is None:
        wanted = [name for name in program.exported_program.graph_signature.user_inputs if isinstance(name, str)]
        given = wanted if len(wanted) == len(given) else given
    names = dict(zip(graph.inputs, given, strict=True))
    if options.output_names is None:
        taken = {*given, *graph.initializers}
        wanted = [f"output_{name}" if name in taken else name for name in _output_names(program.exported_program)]
        if len(wanted) == len({*wanted}) == len({*graph.outputs}):
            names |= zip(graph.outputs, wanted, strict=True)
    for index, value in enumerate(value for node in graph for value in node.outputs):
        if value not in names and value.name in names.values():
            value.name = f"{value.name}_{index}"
    for value, name in names.items():
        value.name = name


def _output_names(program: Any) -> list[str]:
    from torch.utils import _pytree as pytree  # torch has no public name for it

    spec = program.call_spec.out_spec
    tree = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    names = ["_".join(map(_key, path)) for path, _ in pytree.tree_flatten_with_path(tree)[0]]
    return names if isinstance(tree, Mapping) else [f"output_{name}" if name else "output" for name in names]


def _key(key: Any) -> str:
    """One step of a path into a structure of torch's: an index, a key, or the name of an attribute."""
    return str(next(getattr(key, field) for field in ("key", "idx", "name") if hasattr(key, field)))


def _reason(error: BaseException) -> str:
    """What is at the bottom of an error, where torch's exporter wrapped it in advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {_ESCAPES.sub('', str(error)).strip()}"
