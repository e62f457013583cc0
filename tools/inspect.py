"""`mnnx inspect`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mnnx.errors import MnnxError
from mnnx.tools.feeds import FeedOptions, fixed_shapes, shape_options
from mnnx.tools.main import Command
from mnnx.tools.options import at_most_one

if TYPE_CHECKING:
    from mnnx.interpreter.interpreter import Interpreter
    from mnnx.schema.model import Graph, Model, Value


@click.command("inspect", cls=Command)
@click.argument("model")
@shape_options
@click.option("--nodes", is_flag=True, help="List every op with its attributes, inputs and outputs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--msgpack", "as_msgpack", is_flag=True, help="Write the same as MessagePack, for programs, to a file or a pipe.")
@click.option("--text", "as_text", is_flag=True, help="Print the graph as text, one line for each op, which can be compared by lines.")
def command(model: str, feeds: FeedOptions, nodes: bool, as_json: bool, as_msgpack: bool, as_text: bool) -> None:
    """Say what is in MODEL (.mnnx, or .onnx, which is then converted): inputs, outputs, ops, weights, metadata, and, where all input
    shapes are known, FLOPs and the memory plan, as far as shapes don't depend on data."""
    from mnnx.tools import tables
    from mnnx.tools.models import opened

    form = at_most_one(json=as_json, msgpack=as_msgpack, text=as_text)
    pack = _packer() if form == "msgpack" else None
    with opened(model) as interpreter:
        if form == "text":
            from mnnx.schema.graph_text import GraphText

            click.echo(GraphText().of(interpreter.model.graphs[0], interpreter.model.ranges), nl=False)
            return
        report = {"model": model} | describe(interpreter.model) | {"plan": _plan(interpreter, feeds)}
        if nodes:
            report["nodes"] = [row for graph in interpreter.model.graphs for row in _nodes(graph)]
    if pack is not None:
        click.echo(pack(tables.strict(report)), nl=False)
    elif form == "json":
        tables.print_json(report)
    else:
        _print(report)


def _packer() -> Callable[[Any], bytes]:
    """msgpack's packb. Raises MnnxError where the package is missing, click.UsageError where the bytes would go to a terminal."""
    try:
        from msgpack import packb
    except ImportError as error:
        raise MnnxError("--msgpack needs the package msgpack, which isn't installed: pip install 'mnnx[msgpack]'") from error
    if sys.stdout.isatty():
        raise click.UsageError("--msgpack writes bytes, which a terminal can't show: redirect them to a file or another program")
    return packb


def describe(model: Model) -> dict[str, Any]:
    """What a model file holds, for JSON. Op counts include those of subgraphs; equal weights count once."""
    from mnnx.schema import dtypes

    main = model.graphs[0]
    weights = {id(v.constant): v.constant for graph in model.graphs for v in graph.values if v.constant is not None}.values()
    by_dtype: Counter[str] = Counter()
    for array in weights:
        by_dtype[dtypes.name(array.dtype)] += array.nbytes
    return {
        "producer": model.producer,
        "opset": model.opset,
        "metadata": model.metadata,
        "inputs": [_value(main.values[i]) for i in main.inputs],
        "outputs": [_value(main.values[i]) for i in main.outputs],
        "ranges": model.ranges,
        "ops": dict(Counter(node.op.name for graph in model.graphs for node in graph.nodes).most_common()),
        "subgraphs": len(model.graphs) - 1,
        "parameters": sum(array.size for array in weights),
        "weight_bytes": sum(array.nbytes for array in weights),
        "weight_bytes_by_dtype": dict(by_dtype.most_common()),
    }


def _value(value: Value) -> dict[str, Any]:
    from mnnx.schema import dtypes

    return {"name": value.name, "kind": value.kind, "dtype": dtypes.name(value.dtype), "shape": value.shape}


def _plan(interpreter: Interpreter, feeds: FeedOptions) -> dict[str, Any]:
    """What a session plans for the inputs' shapes; {"open": why} where it can't. Raises MnnxError where that is for shapes that were asked
    for."""
    try:
        session = interpreter.create_session()  # plans what has no open dims
        shapes = fixed_shapes(session.inputs, feeds)
        if shapes is None:
            return {"open": "input shapes are open; --shape and --dim settle them"}
        session.resize(shapes)
    except MnnxError as error:
        if feeds.shapes or feeds.sizes:
            raise
        return {"open": str(error)}
    with session:
        info, placement = session.info(), session.placement()
        return {
            "shapes": shapes,
            "outputs": {name: list(t.shape) for name, t in session.outputs.items() if -1 not in t.shape},
            "complete": info["complete"],
            "flops": info["flops"],
            "arena_bytes": info["arena_bytes"],
            "arena_lower_bound_bytes": info["arena_lower_bound_bytes"],
            "units": len(placement),
            "backends": dict(Counter(row.backend for row in placement)),
        }


def _nodes(graph: Graph) -> list[dict[str, Any]]:
    def names(indices: tuple[int, ...]) -> list[str]:
        return ["" if i < 0 else graph.values[i].name for i in indices]

    return [
        {"graph": graph.name, "name": n.name, "op": repr(n.op), "inputs": names(n.inputs), "outputs": names(n.outputs)} for n in graph.nodes
    ]


def _print(report: dict[str, Any]) -> None:
    from mnnx.schema.model import dims_text, range_text
    from mnnx.schema.text import shown
    from mnnx.tools import tables

    weights = ", ".join(f"{name} {tables.size(n)}" for name, n in report["weight_bytes_by_dtype"].items())
    plan = report["plan"]
    rows = [
        ("model", report["model"]),
        ("producer", report["producer"]),
        ("source opset", report["opset"]),
        *((f"dim {name}", range_text(*limits)) for name, limits in report["ranges"].items()),
        *((f"metadata {key}", _short(text)) for key, text in report["metadata"].items()),
        ("ops", f"{sum(report['ops'].values())}" + (f" in the model and {report['subgraphs']} subgraphs" if report["subgraphs"] else "")),
        ("weights", f"{report['parameters']:,} parameters, {tables.size(report['weight_bytes'])} ({weights})" if weights else "none"),
    ]
    if "open" in plan:
        rows.append(("plan", plan["open"]))
    else:
        least = tables.size(plan["arena_lower_bound_bytes"])
        rows += [
            ("plan for", ", ".join(f"{name} {dims_text(shape)}" for name, shape in plan["shapes"].items()) or "no inputs"),
            ("gives", ", ".join(f"{name} {dims_text(shape)}" for name, shape in plan["outputs"].items()) or "shapes that depend on data"),
            ("FLOPs", f"{plan['flops']:,} (a multiply-add counts as two)"),
            ("memory", f"arena {tables.size(plan['arena_bytes'])} (at least {least}), weights {tables.size(report['weight_bytes'])}"),
            *(
                ()
                if plan["complete"]
                else [("known", "up to the first op whose result's shape depends on data; what follows isn't counted")]
            ),
            ("ops run on", ", ".join(f"{name} {count}" for name, count in plan["backends"].items()) or "nothing: all is constant"),
        ]
    tables.print_pairs(rows)
    for title in ("inputs", "outputs"):
        cells = [[v["name"], v["dtype"] if v["kind"] == "tensor" else v["kind"], dims_text(v["shape"])] for v in report[title]]
        tables.print_table(f"\n{title}", ["name", "dtype", "shape"], cells)
    tables.print_table("\nops", ["op", ">count"], report["ops"].items())
    graph = None
    for node in report.get("nodes", []):
        if node["graph"] != graph:
            graph = node["graph"]
            click.echo(f"\ngraph {shown(graph)}")
        click.echo(shown(f"  {', '.join(node['outputs'])} = {node['op']}  ← {', '.join(node['inputs'])}"))


def _short(text: str, limit: int = 100) -> str:
    text = text.replace("\n", "⏎")
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"
