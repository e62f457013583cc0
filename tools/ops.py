"""`mnnx ops`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from mnnx.errors import BackendUnavailable, ConversionError
from mnnx.tools.main import Command
from mnnx.tools.options import at_most_one

if TYPE_CHECKING:
    from onnx.defs import OpSchema

#: ONNX's own domains.
_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")


@click.command("ops", cls=Command)
@click.argument("names", nargs=-1, metavar="[OP]...")
@click.option("--missing", is_flag=True, help="List only the ops that are not supported.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--markdown", is_flag=True, help="Print docs/operators.md.")
def command(names: tuple[str, ...], missing: bool, as_json: bool, markdown: bool) -> None:
    """List the ONNX ops that are supported, or say it of the OPs named, and how each backend runs them.

    native: with a compiled kernel for the usual element types (raster: as movement of data), numpy: with NumPy, interpreter: control
    flow, empty: not under its own name; the converter writes it with other ops.
    """
    from mnnx.tools.tables import print_json

    at_most_one(json=as_json, markdown=markdown)
    rows = onnx_ops()
    if names:
        wanted = {name.lower(): name for name in names}
        rows = [row for row in rows if row["name"].lower() in wanted or row["op"].lower() in wanted]
        found = {text.lower() for row in rows for text in (row["name"], row["op"])}
        if unknown := [name for key, name in wanted.items() if key not in found]:
            raise ConversionError(f"ONNX has no op {', '.join(unknown)} (names as in ONNX, e.g. Conv or ai.onnx.ml::Scaler)")
    if missing:
        rows = [row for row in rows if not row["support"]]
    if markdown:
        click.echo(_markdown(rows), nl=False)
    elif as_json:
        print_json(rows)
    else:
        _print(rows)


def onnx_ops() -> list[dict[str, Any]]:
    """One row per op of the newest opsets, and per op of other domains that the converter knows.

    {name: with its domain, op: without, since: the opsets that changed it, support: "yes", "function" (expanded from the function body
    that ONNX gives) or "", backends: {name: "native" | "native (raster)" | "numpy" | "interpreter" | ""}}. Raises ConversionError where
    onnx isn't installed.
    """
    try:
        import onnx.defs
    except ModuleNotFoundError:
        raise ConversionError("listing ONNX's ops needs onnx: pip install 'mnnx[convert]'") from None
    from mnnx.converter.frontends.onnx.registry import load_all, written_as

    importers = load_all()
    newest: dict[tuple[str, str], OpSchema] = {}
    versions: dict[tuple[str, str], list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain in _DOMAINS:
            key = (schema.domain, schema.name)
            versions.setdefault(key, []).append(schema.since_version)
            if key not in newest or schema.since_version > newest[key].since_version:
                newest[key] = schema
    keys = sorted(newest.keys() | importers.keys())
    return [
        {
            "name": f"{domain}::{op}" if domain else op,
            "op": op,
            "since": sorted(versions.get((domain, op), [])),
            "support": _support((domain, op), newest, importers),
            "backends": _backends(written_as(domain, op) or (f"{domain}::{op}" if domain else op)),
        }
        for domain, op in keys
    ]


def _support(key: tuple[str, str], schemas: dict[tuple[str, str], OpSchema], importers: Iterable[tuple[str, str]]) -> str:
    if key in importers:
        return "yes"
    schema = schemas[key]
    if schema.has_context_dependent_function:
        return "function"
    if not schema.has_function:
        return ""
    inner = [(node.domain, node.op_type) for node in schema.function_body.node]
    return "function" if all(_support(one, schemas, importers) for one in inner) else ""


def _backends(name: str) -> dict[str, str]:
    from mnnx.backends.backend import Backend, backend_creator, backend_names
    from mnnx.interpreter.control_flow import RUNNERS
    from mnnx.interpreter.geometry.registry import can_be_movement
    from mnnx.schema.ops.base import load_all
    from mnnx.schema.ops.raster import Raster

    op_class = load_all().get(name)
    if op_class in RUNNERS:
        return dict.fromkeys(backend_names(), "interpreter")
    kinds = {}
    for backend in backend_names():
        try:
            creator = backend_creator(backend)
        except BackendUnavailable:
            creator = None
        known = op_class is not None and isinstance(creator, type) and issubclass(creator, Backend)
        kinds[backend] = creator.execution_kind(op_class) if known else ""
        if known and kinds[backend] != "native" and can_be_movement(op_class) and creator.execution_kind(Raster) == "native":
            kinds[backend] = "native (raster)"
    return kinds


def _print(rows: list[dict[str, Any]]) -> None:
    from mnnx.tools.tables import print_table

    backends = list(rows[0]["backends"]) if rows else []
    cells = [[r["name"], _opsets(r), r["support"] or "NO", *(r["backends"][name] for name in backends)] for r in rows]
    print_table(_summary(rows), ["op", "changed in opset", "supported", *backends], cells)


def _summary(rows: list[dict[str, Any]]) -> str:
    own = [row for row in rows if row["since"]]
    others = len(rows) - len(own)
    if not own:
        return f"{others} op{'s' * (others != 1)} outside ONNX (or no longer in it)" if others else "no ops"
    text = f"{sum(1 for row in own if row['support'])} of {len(own)} ONNX ops are supported"
    return f"{text}, and {others} that are not in ONNX (or no longer)" if others else text


def _opsets(row: dict[str, Any]) -> str:
    return ", ".join(map(str, row["since"]))


def _markdown(rows: list[dict[str, Any]]) -> str:
    backends = list(rows[0]["backends"])
    lines = [
        "# Operators",
        "",
        "Generated: `make docs` writes it, a test compares. The converter reads every opset from 1 on and brings it to the newest form.",
        "",
        f"{_summary(rows)}.",
        "",
        "*function*: expanded from the function body that ONNX gives for it. *native*: by a compiled kernel for the usual element types;",
        "*native (raster)*: as movement of data, by the kernel for that, or by no work at all where data can stay where it is (a view).",
        "Other types, and what says *numpy*, are computed with NumPy. *interpreter*: control flow. Nothing there: the converter writes",
        "the op with others.",
        "",
        "| op | changed in opset | supported | " + " | ".join(backends) + " |",
        "| --- | --- | --- |" + " --- |" * len(backends),
    ]
    lines += [
        f"| {r['name']} | {_opsets(r)} | {r['support'] or '**no**'} | " + " | ".join(r["backends"][name] for name in backends) + " |"
        for r in rows
    ]
    return "\n".join(lines) + "\n"
