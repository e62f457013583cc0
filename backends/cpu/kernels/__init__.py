"""The sources of the CPU kernels: what only the compiling side imports (numba). The running side knows names and parameters.

How a kernel is written:

    # kernels/activation.py                       the family's module; its kernels are named "activation" or "activation.<something>"
    @kernel_factory("activation.clip", fastmath=("contract",))
    def clip(dtype):                              # parameters: ints, bools, floats, strings and tuples of them
        at = pointer_to(dtype)

        def run(args, part, parts):               # int64s; does chunk `part` of `parts`, any of them on any thread
            x, y, n = at(load_i64(args)), at(load_i64(args + 8)), load_i64(args + 16)
            low = load_f32(args + 24)             # a float32 stands in the low half of its slot
            first, last = share(n, part, parts, 16)
            for i in range(first, last):
                store_out(y, i, max(load_in(x, i), low))
        return run

    # the running side                            executions/*.py; imports nothing from here
    backend.commands.record(kernel("activation.clip", dtype="float32"), arguments(x, y, n, float32_bits(low)), chunks=8)

* The argument block is an int64 array: addresses, counts, byte strides. All sizes are run-time values; a parameter is what changes
  the code (dtypes, tile shapes, vector width, expressions). Fewer parameters, fewer compiles.
* No arrays, no allocation, no exceptions, no Python objects: raw pointers, `intrinsics.alloca`, and helpers under `@inlined`. numba
  compiles a helper for this machine first: what one target alone has (a dot product) is called by the kernel itself.
  An object file may refer to libm, memcpy/memset/memmove and the team's semaphores, nothing else; the compiler checks that.
* Nothing depends on the compiling machine: vector width, FMA and dot products come in as parameters (see `backends/cpu/target.py`).
  `fmuladd` fuses where the target can. `llvm.fma` on a target without it calls libm once per lane.
* A kernel is found in the caches by its name, parameters, target and the text of its module and of the kernel modules that this one
  imports by `from mnnx.backends.cpu.kernels.x import …`. Behaviour must depend on nothing else.
* `fastmath` are LLVM's flags for the kernel's own instructions; helpers under `@inlined` bring their own.
"""
