"""How many ops conversion leaves, beside onnxruntime's extended level: python -m tests.op_counts MODEL.onnx …

Ops of subgraphs count, too; onnxruntime's are those of the optimized model that it saves. Exits with 1 where one of ours has more.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnxruntime

import mnnx


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--level", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="the ops of which there are more than in onnxruntime's model")
    options = parser.parse_args()
    write = sys.stdout.write
    write(f"{'model':<24}{'source':>8}{'mnnx':>8}{'ort':>8}\n")
    above = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in options.models:
            report = mnnx.convert(path, Path(folder) / "model.mnnx", level=options.level)
            ours, theirs = report.ops_after, optimized_by_onnxruntime(path, Path(folder) / "optimized.onnx")
            more = ours.total() > theirs.total()
            above += more
            write(f"{path.stem:<24}{report.ops_before.total():>8}{ours.total():>8}{theirs.total():>8}{'  above' if more else ''}\n")
            if options.verbose:
                write("".join(f"    {name}: {count}\n" for name, count in (ours - theirs).most_common()))
    sys.exit(above > 0)


def optimized_by_onnxruntime(path: Path, target: Path) -> Counter[str]:
    """The ops of the model that onnxruntime makes of one at its extended level, by op type."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in _nodes(onnx.load(target).graph))


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


if __name__ == "__main__":
    main()
