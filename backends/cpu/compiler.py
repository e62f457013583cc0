"""Kernel → object code. The only module of the backend, beside the kernel sources, that imports numba."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import threading
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import compiler, config
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu_options import FastMathOptions
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target

from mnnx.backends.cpu.elf import undefined_symbols
from mnnx.backends.cpu.kernels import registry
from mnnx.backends.cpu.signals import held_back
from mnnx.backends.cpu.target import Target
from mnnx.errors import BackendError

#: What an object may leave to the C library of the process that loads it.
C_LIBRARY = {
    "memcpy", "memmove", "memset", "_GLOBAL_OFFSET_TABLE_",
    "clock_gettime", "pthread_getcpuclockid", "pthread_self", "sched_getcpu", "sched_setaffinity", "sched_yield", "sem_post", "sem_wait",
    "usleep",
    *(name + suffix for suffix in ("", "f") for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf", "erfc", "exp",
        "exp2", "expm1", "fabs", "floor", "fma", "fmax", "fmaximum", "fmin", "fminimum", "fmod", "hypot", "ldexp", "log", "log10",
        "log1p", "log2", "nearbyint", "pow", "rint", "round", "roundeven", "sin", "sincos", "sinh", "sqrt", "tan", "tanh", "trunc",
    )),
}  # fmt: skip

_PAUSE = {"x86_64": "llvm.x86.sse2.pause()", "i686": "llvm.x86.sse2.pause()", "aarch64": "llvm.aarch64.hint(i32 1)"}
_LOCK = threading.Lock()

# numba also loads every helper into this process, where the name must mean something; nobody calls it there.
llvm.add_symbol("mnnx_pause", ctypes.cast(ctypes.pythonapi.Py_IncRef, ctypes.c_void_p).value)


def compile_kernel(name: str, parameters: dict[str, Any], symbol: str, target: Target) -> bytes:
    """An object file that defines `void symbol(int64 args, int64 part, int64 parts)`. Raises BackendError where that can't be."""
    with _LOCK, held_back():
        factory = registry.find(name)
        title = f"{name}({', '.join(f'{k}={v!r}' for k, v in parameters.items())})"
        try:
            module = _intermediate_code(factory.make(**parameters), factory.fastmath, symbol, target.tune)
        except NumbaError as error:
            raise BackendError(f"numba can't compile the kernel {title}: {error}") from error
        return _emit(module, symbol, title, target, target.llvm_features(parameters), factory.unroll)


def assembly(name: str, parameters: dict[str, Any], target: Target) -> str:
    """The kernel's assembly text, for people."""
    with _LOCK, held_back():
        factory = registry.find(name)
        module = _intermediate_code(factory.make(**parameters), factory.fastmath, "kernel", target.tune)
        machine, module = _optimised(module, "kernel", target, target.llvm_features(parameters), factory.unroll)
        return machine.emit_assembly(module)


def _intermediate_code(function, fastmath: tuple[str, ...], symbol: str, tune: str) -> llvm.ModuleRef:
    """LLVM IR with `symbol` as its only visible function, for no particular target but the core `tune` to schedule for."""
    flags = compiler.Flags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    flags.fastmath = FastMathOptions(set(fastmath))
    flags.nrt = False
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    with _unoptimised_helpers():
        result = compiler.compile_extra(
            cpu_target.typing_context, cpu_target.target_context, function, (types.int64,) * 3, types.void, flags, {}
        )
    module = llvm.parse_assembly(str(result.library._final_module))
    _link_dependencies(module, result.library, set())
    module.link_in(llvm.parse_assembly(_entry(symbol, result.fndesc.llvm_func_name)))
    return llvm.parse_assembly(_without_target(str(module), tune))


@contextlib.contextmanager
def _unoptimised_helpers():
    """numba optimises each helper for this machine at once; here that is left to `_optimised`, for the kernel's target."""
    names = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE")
    with global_compiler_lock:  # nobody else compiles meanwhile
        saved = [getattr(config, name) for name in names]
        config.OPT, config.LOOP_VECTORIZE, config.SLP_VECTORIZE = type(config.OPT)(0), 0, 0
        try:
            yield
        finally:
            for name, value in zip(names, saved, strict=True):
                setattr(config, name, value)


def _link_dependencies(module: llvm.ModuleRef, library, seen: set[int]) -> None:
    for dependency in library._linking_libraries:
        if id(dependency) not in seen:
            seen.add(id(dependency))
            module.link_in(llvm.parse_assembly(str(dependency._get_module_for_linking())))
            _link_dependencies(module, dependency, seen)


def _entry(symbol: str, native_name: str) -> str:
    """The function with the C signature; numba's own is `int32 f(result*, exception**, arguments…)`."""
    pointer = ir.IntType(8).as_pointer()
    arguments = [ir.IntType(64)] * 3
    module = ir.Module("entry")
    native = ir.Function(module, ir.FunctionType(ir.IntType(32), [pointer.as_pointer()] * 2 + arguments), native_name)
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), symbol)
    builder = ir.IRBuilder(entry.append_basic_block())
    builder.call(native, [builder.alloca(pointer), builder.alloca(pointer), *entry.args])
    builder.ret_void()
    return str(module)


def _without_target(text: str, tune: str) -> str:
    """IR text without what ties it to the machine that numba compiles for."""
    text = re.sub(r"(?m)^target (triple|datalayout).*$", "", text)
    text = re.sub(r'"(target-cpu|target-features|probe-stack|stack-probe-size)"="[^"]*"', "", text)
    return re.sub(r"(?m)^(define .*) \{$", rf'\1 "tune-cpu"="{tune}" {{', text) if tune else text


def _optimised(
    module: llvm.ModuleRef, symbol: str, target: Target, features: str, unroll: bool
) -> tuple[llvm.TargetMachine, llvm.ModuleRef]:
    machine = _machine(target.triple, target.level.cpu, features)
    if any(function.name == "mnnx_pause" for function in module.functions):
        call = _PAUSE.get(target.arch)
        declaration = f"declare void @{re.sub('i32 1', 'i32', call)}\n" if call else ""
        body = f"call void @{call}" if call else ""
        module.link_in(llvm.parse_assembly(f"{declaration}define void @mnnx_pause() alwaysinline {{ {body}\nret void }}"))
    for value in [*module.functions, *module.global_variables]:
        if not value.is_declaration and value.name != symbol:
            value.linkage = "internal"
    module.triple = target.triple
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_unrolling = unroll
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine, module


def _emit(module: llvm.ModuleRef, symbol: str, title: str, target: Target, features: str, unroll: bool) -> bytes:
    machine, module = _optimised(module, symbol, target, features, unroll)
    data = machine.emit_object(module)
    undefined = undefined_symbols(data)
    if undefined is None:  # not ELF: what the IR still declares
        undefined = {f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")}
    if foreign := undefined - C_LIBRARY:
        raise BackendError(f"the kernel {title} needs {', '.join(sorted(foreign))}, which an object file can't bring along")
    return data


@functools.cache
def _machine(triple: str, cpu: str, features: str) -> llvm.TargetMachine:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default")
