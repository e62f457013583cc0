"""What kernels that may run in chains agree on."""

#: Parts of such a kernel's elements begin at multiples of so many: equal parts of equal numbers of elements are the same elements.
GRAIN = 64
