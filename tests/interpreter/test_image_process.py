"""ImageProcess against the slow reference, over formats, filters and wraps, and what it says when something doesn't fit."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import onnx.parser
import pytest
from PIL import Image

import mnnx
from mnnx.errors import InputError
from mnnx.interpreter.cv_matrix import CVMatrix
from mnnx.interpreter.image_process import FILTERS, WRAPS, ImageProcess, ImageProcessConfig
from mnnx.interpreter.image_source import CHANNELS, YUV_FORMATS
from tests.interpreter import image_reference as reference

AFFINE = np.array([[0.8312, 0.3141, -1.3713], [-0.2718, 0.7071, 1.1314], [0, 0, 1]])
PERSPECTIVE = np.array([[1.1, 0.2, -2.3], [-0.1, 0.9, 0.4], [0.021, -0.013, 1.05]])
MEAN, NORMAL = (103.9, 116.8, 123.7, 7.0), (0.017, 0.0175, 0.0171, 0.5)


def random_image(format, width, height, dtype=np.uint8, seed=3):
    """What ImageProcess takes, the arguments that go with it, and the source as the reference wants it: (H, W, 4) or HSV."""
    rng = np.random.default_rng(seed)
    if format in YUV_FORMATS:
        row = -(-width // 2)
        buffer = rng.integers(0, 256, width * height + 2 * row * -(-height // 2), dtype=np.uint8)
        planes = reference.split_yuv(buffer, format, width, height)
        rgb = reference.yuv_to_rgb(*planes)
        return buffer.tobytes(), {"width": width, "height": height}, np.dstack([rgb, np.full((height, width), 255.0)]), planes[0]
    pixels = rng.integers(0, 180 if format == "HSV" else 256, (height, width, CHANNELS[format])).astype(dtype)
    if dtype == np.float32 and format != "HSV":
        pixels += rng.random(pixels.shape, np.float32)
    return pixels, {}, reference.to_rgba(pixels, format), None


def expected(source, dest, pixels, rgba, luma, filter, wrap, x, y, padding=0.0, clip=True):
    """float64 (H, W, C) before it is normalised."""
    outside = np.array([padding] * 3 + [padding if source in ("RGBA", "BGRA") else 255.0])
    if source == dest == "HSV":
        image, outside = pixels.astype(np.float64), np.array([0, 0, padding])
    elif luma is not None and dest == "GRAY":
        image, outside = luma[..., None].astype(np.float64), np.array([padding])
    else:
        image = rgba
    sampled = reference.sample(image, x, y, filter, wrap, outside)
    if filter == "bicubic" and clip:
        sampled = np.clip(sampled, 0, 255)
    return sampled if image is not rgba else reference.from_rgba(sampled, dest)


def assert_same(actual, wanted, format, atol):
    """Hues are compared around the circle; hues and saturations by the light and colour there are."""
    difference = np.abs(actual - wanted)
    if format == "HSV":
        difference[..., 0] = np.minimum(difference[..., 0], 180 - difference[..., 0]) * wanted[..., 1] / 255
        difference[..., :2] *= wanted[..., 2:] / 255
    assert difference.max(initial=0) <= atol


@pytest.mark.parametrize(("filter", "wrap"), list(itertools.product(FILTERS, WRAPS)))
@pytest.mark.parametrize("dest", CHANNELS)
@pytest.mark.parametrize("source", [*CHANNELS, *YUV_FORMATS])
def test_every_format_filter_and_wrap(source, dest, filter, wrap):
    image, arguments, rgba, luma = random_image(source, 9, 7)
    process = ImageProcess(ImageProcessConfig(source, dest, filter=filter, wrap=wrap), AFFINE)
    actual = process.convert(image, (11, 12), **arguments)
    wanted = expected(source, dest, image, rgba, luma, filter, wrap, *reference.positions(AFFINE, 12, 11))
    assert actual.shape == (1, CHANNELS[dest], 11, 12)
    assert_same(actual[0].transpose(1, 2, 0), wanted, dest, 2e-3)


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("source", CHANNELS)
def test_float_images_have_the_same_units_and_keep_what_exceeds_them(source, filter):
    image, _, rgba, _ = random_image(source, 8, 6, np.float32)
    actual = ImageProcess(ImageProcessConfig(source, "BGRA", filter=filter), AFFINE).convert(image, (5, 7))
    wanted = expected(source, "BGRA", image, rgba, None, filter, "clamp_to_edge", *reference.positions(AFFINE, 7, 5), clip=False)
    np.testing.assert_allclose(actual[0].transpose(1, 2, 0), wanted, atol=2e-3)


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("filter", FILTERS)
def test_perspective(filter, wrap):
    image, _, rgba, _ = random_image("RGB", 13, 10)
    process = ImageProcess(ImageProcessConfig("RGB", "RGB", filter=filter, wrap=wrap, padding=114), PERSPECTIVE)
    wanted = expected("RGB", "RGB", image, rgba, None, filter, wrap, *reference.positions(PERSPECTIVE, 17, 9), padding=114)
    np.testing.assert_allclose(process.convert(image, (9, 17))[0].transpose(1, 2, 0), wanted, atol=2e-3)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("dest", ["GRAY", "RGB", "BGRA"])
def test_normalised_per_channel_in_both_layouts(dest, dtype, layout):
    image, _, rgba, _ = random_image("BGR", 70, 5)
    mean, normal = (MEAN, NORMAL) if dtype == "float32" else ((-20.4, 9.7, 3.1, 0), (1.5, 0.9, 1.1, 1))
    process = ImageProcess(ImageProcessConfig("BGR", dest, mean, normal, filter="bilinear", layout=layout), AFFINE)
    actual = process.convert(image, (4, 131), dtype=dtype)
    wanted = expected("BGR", dest, image, rgba, None, "bilinear", "clamp_to_edge", *reference.positions(AFFINE, 131, 4))
    wanted = (wanted - mean[: CHANNELS[dest]]) * normal[: CHANNELS[dest]]
    actual = actual[0].transpose(1, 2, 0) if layout == "NCHW" else actual[0]
    if dtype == "uint8":
        np.testing.assert_allclose(actual, np.clip(wanted, 0, 255), atol=0.5 + 1e-3)
    else:
        np.testing.assert_allclose(actual, wanted, atol=1e-4)


def test_nearest_copies_and_reorders_exactly():
    image, _, _, _ = random_image("BGRA", 33, 21)
    np.testing.assert_array_equal(ImageProcess(ImageProcessConfig("BGRA", "RGB")).convert(image)[0], image[..., 2::-1].transpose(2, 0, 1))


def test_uint8_rounds_half_up():
    image = np.array([[0, 1], [254, 255]], np.uint8)
    matrix = [[1, 0, 0.5], [0, 1, 0], [0, 0, 1]]
    process = ImageProcess(ImageProcessConfig("GRAY", "GRAY", filter="bilinear"), matrix)
    assert process.convert(image, dtype=np.uint8)[0, 0].tolist() == [[1, 1], [255, 255]]


@pytest.mark.parametrize("standard", ["BT.601", "BT.709"])
@pytest.mark.parametrize("range", ["video", "full"])
def test_yuv_standards_and_ranges(standard, range):
    buffer = np.random.default_rng(1).integers(0, 256, 24, dtype=np.uint8)
    actual = ImageProcess(ImageProcessConfig("YUV_NV12", "RGB", yuv_standard=standard, yuv_range=range)).convert(buffer, width=4, height=4)
    wanted = reference.yuv_to_rgb(*reference.split_yuv(buffer, "YUV_NV12", 4, 4), standard, range == "full")
    np.testing.assert_allclose(actual[0].transpose(1, 2, 0), wanted, atol=2e-3)


def test_yuv_white_black_and_red():
    pixels = {(235, 128, 128): (255, 255, 255), (16, 128, 128): (0, 0, 0), (81, 90, 240): (254, 0, 0)}
    for (y, u, v), rgb in pixels.items():
        image = bytes([y] * 4 + [u, v])
        actual = ImageProcess(ImageProcessConfig("YUV_NV12", "RGB")).convert(image, width=2, height=2, dtype=np.uint8)
        assert actual[0, :, 0, 0].tolist() == pytest.approx(rgb, abs=1)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 4), (5, 1), (3, 3), (7, 2)])
@pytest.mark.parametrize("format", YUV_FORMATS)
def test_yuv_of_odd_size_with_and_without_stride(format, width, height):
    image, arguments, rgba, _ = random_image(format, width, height)
    process = ImageProcess(ImageProcessConfig(format, "RGB"))
    np.testing.assert_allclose(process.convert(image, **arguments)[0].transpose(1, 2, 0), rgba[..., :3], atol=2e-3)
    stride, columns = width + 3, -(-width // 2)
    data = np.frombuffer(image, np.uint8)
    luma = np.full((height, stride), 99, np.uint8)
    luma[:, :width] = data[: width * height].reshape(height, width)
    chroma_row = (stride + stride % 2) // 2 if format == "YUV_I420" else stride + stride % 2
    row = columns if format == "YUV_I420" else 2 * columns
    chroma = np.full((data[width * height :].size // row, chroma_row), 77, np.uint8)
    chroma[:, :row] = data[width * height :].reshape(-1, row)
    padded = np.concatenate([luma.ravel(), chroma.ravel()]).tobytes()
    np.testing.assert_allclose(process.convert(padded, stride=stride, **arguments)[0].transpose(1, 2, 0), rgba[..., :3], atol=2e-3)


def test_yuv_array_is_as_opencv_has_it():
    image = np.random.default_rng(0).integers(0, 256, (9, 4), dtype=np.uint8)
    process = ImageProcess(ImageProcessConfig("YUV_I420", "RGB"))
    np.testing.assert_array_equal(process.convert(image), process.convert(image.tobytes(), width=4, height=6))


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("filter", FILTERS)
def test_one_pixel_to_one_pixel_and_to_many(filter, wrap):
    process = ImageProcess(ImageProcessConfig("GRAY", "GRAY", filter=filter, wrap=wrap), np.eye(3))
    image = np.array([[200]], np.uint8)
    assert process.convert(image)[0, 0, 0, 0] == 200
    wanted = reference.sample(image[..., None].astype(float), *reference.positions(np.eye(3), 3, 2), filter, wrap, 0.0)
    np.testing.assert_allclose(process.convert(image, (2, 3))[0, 0], wanted[..., 0], atol=1e-3)


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("matrix", [np.zeros((3, 3)), np.full((3, 3), np.nan), [[1e300, 0, 0], [0, -1e300, 0], [0, 0, 1]], np.ones((3, 3))])
@pytest.mark.parametrize("wrap", WRAPS)
def test_matrices_that_lead_nowhere_give_pixels_of_the_image_or_the_padding(matrix, filter, wrap):
    image = np.full((3, 4, 3), 50, np.uint8)
    actual = ImageProcess(ImageProcessConfig("RGB", "RGB", filter=filter, wrap=wrap), matrix).convert(image, (8, 9))
    assert ((actual > -1) & (actual < 51)).all()


def test_without_a_matrix_the_whole_source_becomes_the_whole_destination_as_pillow_scales_up():
    image, _, _, _ = random_image("RGB", 11, 7)
    actual = ImageProcess(ImageProcessConfig("RGB", "RGB", filter="bilinear")).convert(image, (24, 30), dtype=np.uint8)
    wanted = np.asarray(Image.fromarray(image).resize((30, 24), Image.Resampling.BILINEAR))
    assert np.abs(actual[0].transpose(1, 2, 0).astype(int) - wanted).max() <= 1


def test_bicubic_with_catmull_roms_coefficient_is_pillows_away_from_the_edges():
    image = random_image("GRAY", 12, 12)[0] // 2 + 64  # Pillow clips between its two passes
    config = ImageProcessConfig("GRAY", "GRAY", filter="bicubic", cubic_coefficient=-0.5)
    actual = ImageProcess(config).convert(image, (24, 24), dtype=np.uint8)[0, 0]
    wanted = np.asarray(Image.fromarray(image[..., 0]).resize((24, 24), Image.Resampling.BICUBIC))
    assert np.abs(actual.astype(int) - wanted)[4:-4, 4:-4].max() <= 1


def test_matrix_is_a_cvmatrix_too():
    image, _, _, _ = random_image("RGB", 10, 10)
    matrix = CVMatrix()
    matrix.setScale(2, 2)
    matrix.postTranslate(1, 0)
    process = ImageProcess(ImageProcessConfig("RGB", "RGB"))
    process.setMatrix(matrix)
    actual = process.convert(image, (4, 4))
    np.testing.assert_array_equal(actual[0], image[0:8:2, 1:9:2].transpose(2, 0, 1))


def test_buffers_with_a_stride_and_views_with_any_strides():
    image, _, _, _ = random_image("RGB", 5, 4)
    process = ImageProcess(ImageProcessConfig("RGB", "RGB"))
    wanted = image.transpose(2, 0, 1)
    padded = np.zeros((4, 20), np.uint8)
    padded[:, :15] = image.reshape(4, 15)
    for kind in (bytes, bytearray, memoryview):
        np.testing.assert_array_equal(process.convert(kind(padded.tobytes()), width=5, height=4, stride=20)[0], wanted)
    np.testing.assert_array_equal(process.convert(padded.tobytes()[:75], width=5, height=4, stride=20)[0], wanted)
    np.testing.assert_array_equal(process.convert(image[::-1, ::-1])[0], wanted[:, ::-1, ::-1])
    np.testing.assert_array_equal(process.convert(np.asfortranarray(image))[0], wanted)
    np.testing.assert_array_equal(process.convert(image[..., ::-1])[0], wanted[::-1])


def test_pillow_images_bring_their_own_format():
    rgb, rgba, grey = (random_image(format, 6, 5)[0] for format in ("RGB", "RGBA", "GRAY"))
    process = ImageProcess(ImageProcessConfig("YUV_NV21", "BGR"))
    np.testing.assert_array_equal(process.convert(Image.fromarray(rgb))[0], rgb[..., ::-1].transpose(2, 0, 1))
    np.testing.assert_array_equal(process.convert(Image.fromarray(rgba))[0], rgba[..., 2::-1].transpose(2, 0, 1))
    np.testing.assert_array_equal(process.convert(Image.fromarray(grey[..., 0]))[0], np.repeat(grey.transpose(2, 0, 1), 3, 0))
    palette = Image.fromarray(rgb).quantize(4)
    np.testing.assert_array_equal(process.convert(palette)[0], np.asarray(palette.convert("RGB"))[..., ::-1].transpose(2, 0, 1))


def test_writes_into_arrays_of_any_strides():
    image, _, _, _ = random_image("RGB", 6, 5)
    process = ImageProcess(ImageProcessConfig("RGB", "RGB"))
    batch = np.zeros((2, 3, 5, 6), np.float32)
    assert process.convert(image, batch[1]) is not None
    np.testing.assert_array_equal(batch[1], image.transpose(2, 0, 1))
    assert not batch[0].any()
    wide = np.zeros((1, 5, 12, 3), np.uint8)
    process.convert(image, wide[:, :, ::2])
    np.testing.assert_array_equal(wide[0, :, ::2], image)
    grey = np.zeros((5, 6), np.float32)
    ImageProcess(ImageProcessConfig("GRAY", "GRAY")).convert(image[..., 0], grey)
    np.testing.assert_array_equal(grey, image[..., 0])


class OpenTensor:
    """What a session's tensor is to ImageProcess."""

    def __init__(self, shape, dtype=np.float32):
        self.shape, self.dtype, self.value = shape, np.dtype(dtype), None

    def host_array(self):
        self.value = np.empty(self.shape, self.dtype)
        return self.value


def test_writes_into_a_tensor_and_returns_it():
    image, _, _, _ = random_image("RGB", 6, 5)
    tensor = OpenTensor((1, 3, 5, 6))
    assert ImageProcess(ImageProcessConfig("RGB", "RGB")).convert(image, tensor) is tensor
    np.testing.assert_array_equal(tensor.value[0], image.transpose(2, 0, 1))


@pytest.fixture(scope="module")
def doubling(tmp_path_factory):
    """An interpreter of y = x + x for pictures of any size."""
    path = tmp_path_factory.mktemp("model") / "doubling.mnnx"
    text = """<ir_version: 10, opset_import: ["": 21]> doubling (float[1, 3, h, w] x) => (float[1, 3, h, w] y) { y = Add(x, x) }"""
    mnnx.convert(onnx.parser.parse_model(text), path)
    return mnnx.Interpreter.from_file(path)


def test_fills_the_input_of_a_session(doubling):
    image, _, _, _ = random_image("RGB", 6, 5)
    session = doubling.create_session()
    session.resize({"x": (1, 3, 5, 6)})
    process = ImageProcess(ImageProcessConfig("RGB", "RGB"))
    for picture in (image, image[::-1]):
        assert process.convert(picture, session.inputs["x"]) is session.inputs["x"]
        np.testing.assert_array_equal(session.run()["y"][0], 2.0 * picture.transpose(2, 0, 1))


def test_an_input_that_does_not_fit_stays_unfilled(doubling):
    session = doubling.create_session()
    process = ImageProcess(ImageProcessConfig("GRAY", "GRAY"))
    with pytest.raises(InputError, match="resize the session first"):
        process.convert(np.zeros((5, 6), np.uint8), session.inputs["x"])
    session.resize({"x": (1, 3, 5, 6)})
    with pytest.raises(InputError, match="has 1 channels"):
        process.convert(np.zeros((5, 6), np.uint8), session.inputs["x"])
    assert not session.inputs["x"].filled


def test_threads_give_what_one_thread_gives():
    image, _, _, _ = random_image("RGB", 300, 200)
    configs = [ImageProcessConfig("RGB", "RGB", filter="bilinear", num_threads=threads) for threads in (1, 3)]
    one, three = (ImageProcess(config, AFFINE).convert(image, (257, 311)) for config in configs)
    np.testing.assert_array_equal(one, three)


def test_many_callers_at_once():
    image, _, _, _ = random_image("RGB", 300, 200)
    process = ImageProcess(ImageProcessConfig("RGB", "BGR", filter="bilinear", num_threads=2), AFFINE)
    wanted, failures = process.convert(image, (200, 200)), []

    def call():
        for _ in range(5):
            if not np.array_equal(process.convert(image, (200, 200)), wanted):
                failures.append(1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


RGB = np.zeros((4, 6, 3), np.uint8)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source_format": "RGBX"}, "source_format is one of RGBA, RGB, BGR, BGRA, GRAY, HSV, YUV_NV21, YUV_NV12, YUV_I420; got 'RGBX'"),
        ({"dest_format": "YUV_NV21"}, "dest_format is one of RGBA, RGB, BGR, BGRA, GRAY, HSV; got"),
        ({"filter": "lanczos"}, "filter is one of nearest, bilinear, bicubic"),
        ({"wrap": "mirror"}, "wrap is one of clamp_to_edge, zero, repeat"),
        ({"yuv_range": "tv"}, "yuv_range is one of video, full"),
        ({"mean": (1, 2)}, "mean is a number or has one number per channel of RGBA"),
        ({"normal": (1, 2, 3, 4, 5)}, "normal is a number"),
        ({"num_threads": -1}, "num_threads"),
        ({"mean": "dark"}, "mean is a number"),
        ({"mean": None}, "mean is a number"),
    ],
)
def test_config_names_what_is_wrong(fields, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        ImageProcessConfig(**fields)


@pytest.mark.parametrize(
    ("format", "image", "dest", "arguments", "message"),
    [
        ("RGBA", RGB, None, {}, r"RGBA is \(height, width, 4\); the array is \(4, 6, 3\)"),
        ("RGB", RGB[0], None, {}, r"the array is \(6, 3\)"),
        ("RGB", RGB.astype(np.int32), None, {}, "dtype uint8 or float32; got int32"),
        ("YUV_NV21", RGB[..., 0].astype(np.float32), None, {}, "dtype uint8; got float32"),
        ("YUV_NV21", np.zeros((7, 6), np.uint8), None, {}, "both sizes even"),
        ("YUV_I420", np.zeros((6, 5), np.uint8), None, {}, "both sizes even"),
        ("RGB", np.zeros((0, 6, 3), np.uint8), None, {}, "at least one pixel"),
        ("RGB", [[1, 2, 3]], None, {}, "got list"),
        ("RGB", bytes(72), None, {}, "needs its width and height"),
        ("RGB", bytes(72), None, {"width": 0, "height": 4}, "at least one pixel"),
        ("RGB", bytes(71), None, {"width": 6, "height": 4}, "needs 72 bytes, it has 71"),
        ("RGB", bytes(72), None, {"width": 6, "height": 4, "stride": 20}, "needs 78 bytes, it has 72"),
        ("RGB", bytes(72), None, {"width": 6, "height": 4, "stride": 17}, "stride of 17 bytes is less than a row.* 18 bytes"),
        ("RGB", bytes(72), None, {"width": 6, "height": 4, "stride": -18}, "stride of -18 bytes is less than a row"),
        ("YUV_NV21", bytes(35), None, {"width": 6, "height": 4}, "needs 36 bytes, it has 35"),
        ("YUV_NV12", bytes(16), None, {"width": 3, "height": 3}, "needs 17 bytes, it has 16"),
        ("YUV_I420", bytes(16), None, {"width": 3, "height": 3}, "needs 17 bytes, it has 16"),
        ("RGB", RGB, None, {"stride": 18}, "an array has its own strides"),
        ("RGB", RGB, (1, 4, 4, 6), {}, r"has 3 channels.*got \(1, 4, 4, 6\)"),
        ("RGB", RGB, (2, 3, 4, 6), {}, r"\(1, 3, H, W\)"),
        ("RGB", RGB, (-1, 4), {}, "negative"),
        ("RGB", RGB, np.zeros((1, 3, 4, 6), np.float64), {}, "dtype float32 or uint8; got float64"),
        ("RGB", RGB, "x", {}, "got str"),
        ("RGB", RGB, OpenTensor((1, 3, -1, -1)), {}, "resize the session first"),
        ("RGB", RGB, OpenTensor((1, 4, 8, 8)), {}, "has 3 channels"),
    ],
)
def test_convert_names_what_is_wrong(format, image, dest, arguments, message):
    with pytest.raises(InputError, match=message):
        ImageProcess(ImageProcessConfig(format, "RGB")).convert(image, dest, **arguments)


def test_read_only_destinations_and_matrices_of_other_sizes():
    frozen = np.zeros((1, 3, 4, 6), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(InputError, match="read-only"):
        ImageProcess(ImageProcessConfig("RGB", "RGB")).convert(RGB, frozen)
    with pytest.raises(InputError, match="9 values"):
        ImageProcess(ImageProcessConfig("RGB", "RGB"), np.eye(2)).convert(RGB)


@pytest.mark.parametrize("matrix", [np.eye(2), np.eye(4), [1, 2, 3], 5])
def test_a_matrix_that_isnt_3x3_is_refused_when_it_is_set(matrix):
    with pytest.raises(InputError, match="matrix"):
        ImageProcess(ImageProcessConfig(), matrix)
    process = ImageProcess()
    for use in (process.setMatrix, lambda value: setattr(process, "matrix", value)):
        with pytest.raises(InputError, match="matrix"):
            use(matrix)
    assert process.matrix is None


@pytest.mark.parametrize("dest", [(0, 0), (0, 5), (1, 4, 5, 0), np.empty((4, 0, 7), np.float32)])
def test_a_destination_without_pixels_is_refused(dest):
    with pytest.raises(InputError, match="has no pixels"):
        ImageProcess().convert(np.zeros((4, 5, 4), np.uint8), dest)
