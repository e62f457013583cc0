"""The order of loads and stores within a kernel."""

from numba import types
from numba.extending import intrinsic


@intrinsic
def settle_stores(typing):
    """From here on `load_in` may read what `store_out` has written so far, in the same thread. It costs no instruction."""

    def codegen(context, builder, signature, arguments):
        builder.fence("seq_cst", targetscope="singlethread")
        return context.get_dummy_value()

    return types.void(), codegen
