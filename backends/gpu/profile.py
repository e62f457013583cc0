"""What to choose for which device: block widths, tiles, work groups.

A profile is picked by what the driver reports. Figures come from the vendors' public guides and, for PoCL and lavapipe, from measurements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mnnx.schema.records import Row


class Profile(Row):
    """pattern: a regular expression over "<vendor> <device> <platform>", case-insensitive. block: channels in a block of the blocked
    layout, the vector that kernels compute with. rows: rows (pixels) in a work item's tile of a product. vectors: blocks of columns
    (output channels) in it. group: work items of a work group. source: where the figures come from. tile_group: the work group of
    kernels whose work items make tiles: of pixels, of blocks, and of what else. pads: whether convolutions run over copies with their
    padding, rather than check for each pixel whether it is there. items: how many work items it takes to fill the device. halves:
    whether storing float32 as halves makes it faster. fma: whether fma(a, b, c) is one instruction, which rounds once.
    compiles_late: whether the driver compiles a kernel when that first runs, not when its pipeline is made. loop_steps: how many
    iterations the loops of a work item may make, nested ones too, all of them together; the driver ends those that make more, and says
    nothing."""

    name: str
    pattern: str
    block: int
    rows: int
    vectors: int
    group: int
    source: str
    tile_group: tuple[int, int, int] = (16, 4, 1)
    pads: bool = False
    items: int = 2048
    halves: bool = True
    fma: bool = True
    compiles_late: bool = False
    loop_steps: int | None = None

    @property
    def is_cpu(self) -> bool:
        """Whether work items run one after another, each with all of a core: then neighbours need not read neighbours, groups that work
        together gain nothing, and few work items are enough."""
        return self.name == "pocl"


#: The first that fits.
PROFILES: Sequence[Profile] = (
    Profile(
        "pocl",
        r"portable computing language|pocl",
        16,
        8,
        1,
        16,
        "measured: 8 rows of float16 reach the most of a matrix product",
        (1, 1, 1),
        True,
        8,
        False,
    ),
    Profile(
        "lavapipe",
        r"llvmpipe",
        4,
        8,
        2,
        16,
        "measured: 8 rows of two float4 reach the most of a matrix product; Mesa's LP_MAX_TGSI_LOOP_ITERATIONS (gallivm/lp_bld_limits.h)",
        items=64,
        halves=False,
        fma=False,
        compiles_late=True,
        loop_steps=65_535,
    ),
    Profile(
        "v3d",
        r"v3d|videocore",
        4,
        4,
        1,
        64,
        "Broadcom VideoCore VI 3D Architecture Reference: 16-lane QPUs, 4 threads of 16 registers, an adder beside a multiplier",
        fma=False,
    ),
    Profile("mali", r"\bmali\b|\barm\b", 4, 4, 1, 64, "Arm GPU Best Practices Developer Guide: work groups of 64, vectorised accesses"),
    Profile("adreno", r"adreno|qualcomm", 4, 8, 1, 64, "Qualcomm Snapdragon OpenCL Programming Guide: waves of 64, 128-bit loads"),
    Profile("nvidia", r"nvidia|tegra", 4, 8, 1, 64, "NVIDIA CUDA C++ Best Practices Guide: warps of 32, 128-bit accesses"),
    Profile("intel", r"intel", 4, 8, 1, 64, "Intel oneAPI GPU Optimization Guide: SIMD8/16/32 sub-groups, 128 registers a thread"),
    Profile("amd", r"amd|advanced micro devices|radeon|radv", 4, 8, 1, 64, "AMD RDNA Performance Guide: waves of 32 and 64"),
    Profile("other", r"", 4, 4, 1, 64, "no device in particular: what every one of the above runs"),
)


def profile_of(description: str) -> Profile:
    """The profile for a device's description, see `Profile.pattern`."""
    return next(profile for profile in PROFILES if re.search(profile.pattern, description, re.IGNORECASE))
