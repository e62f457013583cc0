"""CVImageProcess as scripts for MNN use it."""

from __future__ import annotations

import numpy as np
import pytest

import mnnx
import mnnx.interpreter.pymnn_image as MNN  # noqa: N812
from mnnx.errors import InputError
from mnnx.interpreter.cv_matrix import CVMatrix

IMAGE = np.random.default_rng(5).integers(0, 256, (6, 8, 3), dtype=np.uint8)


class HostTensor:
    """A float tensor, 0: Tensorflow's layout, 1: Caffe's."""

    def __init__(self, shape, dimension_type, dtype=np.float32):
        self.shape, self.dtype, self.value = shape, np.dtype(dtype), None
        self._type = dimension_type

    def getDimensionType(self):  # noqa: N802
        return self._type

    def host_array(self):
        self.value = np.empty(self.shape, self.dtype)
        return self.value


def bgr_to_rgb(**more):
    return MNN.CVImageProcess({"sourceFormat": MNN.CV_ImageFormat_BGR, "destFormat": MNN.CV_ImageFormat_RGB, **more})


def test_normalises_a_float_tensor_in_tensorflows_layout():
    tensor = HostTensor((1, 6, 8, 3), 0)
    process = bgr_to_rgb(mean=(103.94, 116.78, 123.68, 0.0), normal=(0.017, 0.018, 0.019, 0.0))
    assert process.convert(IMAGE, 8, 6, 0, tensor) == 0
    wanted = (IMAGE[..., ::-1] - [103.94, 116.78, 123.68]) * [0.017, 0.018, 0.019]
    np.testing.assert_allclose(tensor.value[0], wanted, atol=1e-5)


@pytest.mark.parametrize(
    "source", [IMAGE.ctypes.data, IMAGE, IMAGE.tobytes(), tuple(IMAGE.ravel().tolist())], ids=["address", "array", "bytes", "tuple"]
)
def test_takes_addresses_arrays_bytes_and_tuples(source):
    tensor = HostTensor((1, 3, 6, 8), 1)
    bgr_to_rgb().convert(source, 8, 6, 24, tensor)
    np.testing.assert_array_equal(tensor.value[0], IMAGE[..., ::-1].transpose(2, 0, 1))


def test_without_a_matrix_it_crops():
    tensor = HostTensor((1, 3, 4, 5), 1)
    bgr_to_rgb().convert(IMAGE, 8, 6, 0, tensor)
    np.testing.assert_array_equal(tensor.value[0], IMAGE[:4, :5, ::-1].transpose(2, 0, 1))


def test_matrix_is_taken_as_it_is_when_set():
    tensor, matrix, process = HostTensor((1, 3, 3, 4), 1), CVMatrix(), bgr_to_rgb()
    matrix.setScale(2, 2)
    process.setMatrix(matrix)
    matrix.setScale(5, 5)
    process.convert(IMAGE, 8, 6, 0, tensor)
    np.testing.assert_array_equal(tensor.value[0], IMAGE[::2, ::2, ::-1].transpose(2, 0, 1))


def test_padding_fills_what_lies_outside():
    tensor, matrix = HostTensor((1, 3, 2, 2), 1), CVMatrix()
    matrix.setTranslate(-1, 0)
    process = bgr_to_rgb(wrap=MNN.CV_Wrap_ZERO)
    process.setPadding(114)
    process.setMatrix(matrix)
    process.convert(IMAGE, 8, 6, 0, tensor)
    assert (tensor.value[0, :, :, 0] == 114).all()
    np.testing.assert_array_equal(tensor.value[0, :, :, 1], IMAGE[:2, 0, ::-1].T)


def test_uint8_tensors_are_not_normalised():
    tensor = HostTensor((1, 6, 8, 3), 0, np.uint8)
    bgr_to_rgb(mean=(1, 2, 3, 4), normal=(0.1, 0.1, 0.1, 0.1)).convert(IMAGE, 8, 6, 0, tensor)
    np.testing.assert_array_equal(tensor.value[0], IMAGE[..., ::-1])


def test_alpha_of_the_default_format_is_left_out_of_a_tensor_of_three_channels():
    tensor = HostTensor((1, 3, 6, 8), 1)
    MNN.CVImageProcess({"sourceFormat": MNN.CV_ImageFormat_RGB}).convert(IMAGE, 8, 6, 0, tensor)
    np.testing.assert_array_equal(tensor.value[0], IMAGE.transpose(2, 0, 1))


def test_an_image_tensor_has_the_images_size_and_can_be_written_to():
    process = bgr_to_rgb()
    tensor = process.createImageTensor(mnnx.Halide_Type_Uint8, 8, 6, 3)
    assert (tensor.getShape(), tensor.getDimensionType()) == ((1, 6, 8, 3), mnnx.Tensor_DimensionType_Tensorflow)
    process.convert(IMAGE, 8, 6, 0, tensor)
    np.testing.assert_array_equal(tensor.getNumpyData()[0], IMAGE[..., ::-1])


@pytest.mark.parametrize("config", [{"filter": 1}, {"filterType": 9}, {"destFormat": MNN.CV_ImageFormat_YUV_NV21}, {"mean": (1, 2)}])
def test_unknown_keys_and_values_are_errors(config):
    with pytest.raises(InputError):
        MNN.CVImageProcess(config)
