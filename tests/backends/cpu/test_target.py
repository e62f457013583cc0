"""Targets: what is known of machines, and that code for one has no instruction of a better one."""

import os
import sys

import pytest

from mnnx.backends.cpu import host_features
from mnnx.backends.cpu.compiler import assembly
from mnnx.backends.cpu.target import BOARDS, LEVELS, Target
from mnnx.errors import BackendError

host = Target.host.__func__.__wrapped__


def test_named_targets_are_levels_and_boards():
    assert Target.named("x86-64-v4").vector_bytes == 64
    assert Target.named("x86-64-v4").dot_product == "avx512vnni"
    assert Target.named("raspberrypi4").level is Target.named("armv8").level
    assert (Target.named("raspberrypi4").dot_product, Target.named("raspberrypi5").dot_product) == (None, "dotprod")
    with pytest.raises(BackendError, match=r"no target 'toaster'; known ones: x86-64, .*raspberrypi5"):
        Target.named("toaster")


def test_levels_need_what_can_be_detected():
    known = {*host_features._CPUID.values(), *host_features._HWCAPS.values()}
    assert all(level.needs <= known for level in LEVELS.values())


def test_a_machine_runs_its_level_and_those_below():
    def runs(name):
        return {level.name for level in LEVELS.values() if Target.named(name).runs(level)}

    assert runs("x86-64-v3") == {"x86-64", "x86-64-v2", "x86-64-v3"}
    assert runs("raspberrypi3") == {"armv8"}


@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="x86 Linux only")
def test_the_processor_and_the_kernel_say_the_same():
    visible = {*host_features._CPUID.values()} - {"osxsave"}
    assert host_features.features() & visible == host_features._proc_features() & visible


@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="x86 Linux only")
@pytest.mark.parametrize(
    ("missing", "level", "dot"),
    [
        (set(), "x86-64-v4", "avx512vnni"),
        ({"avx512bw"}, "x86-64-v3", "avxvnni"),
        ({"fma"}, "x86-64-v2", None),
        ({"popcnt"}, "x86-64", None),
    ],
)
def test_the_host_is_of_the_best_level_that_it_has_all_of(monkeypatch, missing, level, dot):
    features = LEVELS["x86-64-v4"].needs | {"avx512_vnni", "avx_vnni"}
    monkeypatch.setattr(host_features, "features", lambda: features - missing)
    monkeypatch.delenv("MNNX_TARGET", raising=False)
    found = host(Target)
    assert (found.level.name, found.dot_product) == (level, dot)


def test_the_environment_chooses_a_lesser_target(monkeypatch):
    least = next(level for level in LEVELS.values() if Target.host().runs(level))
    monkeypatch.setenv("MNNX_TARGET", least.name)
    assert host(Target).level is least
    foreign = "raspberrypi4" if least.arch == "x86_64" else "x86-64-v2"
    monkeypatch.setenv("MNNX_TARGET", foreign)
    with pytest.raises(BackendError, match=f"MNNX_TARGET is {foreign}, but this machine"):
        host(Target)


def test_caches_have_plausible_sizes():
    assert all(1 << 10 < size < 1 << 40 for size in Target.host().caches[:2])
    assert set(host_features.caches()) <= {1, 2, 3, 4}


def test_a_bundle_serves_machines_with_and_without_extensions_and_any_caches():
    level, board = Target.named("armv8"), BOARDS["raspberrypi5"]
    assert {variant.dot_product for variant in level.variants} == {"dotprod", None}
    assert {variant.dot_product for variant in board.variants} == {"dotprod"}
    assert {variant.cache_bytes for variant in board.variants} == set(level.level.caches)
    for nbytes in (1, 100 << 10, 300 << 10, 1 << 30):
        assert board._replace(caches=(0, nbytes, 0)).cache_bytes in level.level.caches


@pytest.mark.parametrize(
    ("name", "has", "lacks"),
    [("x86-64-v2", "xmm", "ymm"), ("x86-64-v3", "ymm", "zmm"), ("x86-64-v4", "zmm", "st1"), ("raspberrypi4", "v0.4s", "xmm")],
)
def test_code_uses_the_vectors_of_its_target(name, has, lacks):
    text = assembly("selfcheck.count", {}, Target.named(name))
    assert has in text
    assert lacks not in text


def test_a_kernel_gets_the_extension_that_its_mode_names():
    target = Target.named("x86-64-v4")
    assert target.llvm_features({"mode": "vnni"}) == "-prefer-256-bit,+avx512vnni"
    assert target.llvm_features({"mode": "pairs"}) == "-prefer-256-bit"
    assert Target.named("x86-64-v3").llvm_features({"mode": "vnni"}) == "+avxvnni"
