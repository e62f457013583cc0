"""Image preprocessing done the slow way, whole image by whole image, for the tests: it shares nothing with mnnx."""

from __future__ import annotations

import colorsys

import numpy as np

ORDER = {"RGBA": "RGBA", "RGB": "RGB", "BGR": "BGR", "BGRA": "BGRA", "GRAY": "L", "HSV": "HSV"}


def yuv_to_rgb(y, u, v, standard="BT.601", full_range=False):
    """RGB of YCbCr, clipped to 0 … 255: the standard's own RGB → YCbCr matrix, inverted."""
    kr, kb = {"BT.601": (0.299, 0.114), "BT.709": (0.2126, 0.0722)}[standard]
    luma = np.array([kr, 1 - kr - kb, kb])
    to_yuv = np.array([luma, (np.array([0, 0, 1]) - luma) / (2 * (1 - kb)), (np.array([1, 0, 0]) - luma) / (2 * (1 - kr))])
    ycc = np.stack([y, u, v], -1).astype(np.float64) - [0 if full_range else 16, 128, 128]
    if not full_range:
        ycc *= [255 / 219, 255 / 224, 255 / 224]
    return np.clip(ycc @ np.linalg.inv(to_yuv).T, 0, 255)


def split_yuv(buffer, format, width, height):
    """Y, U, V of a tight buffer, chroma repeated to the full size."""
    columns, rows = -(-width // 2), -(-height // 2)
    y = buffer[: width * height].reshape(height, width)
    if format == "YUV_I420":
        chroma = buffer[width * height :][: 2 * rows * columns]
        u, v = chroma.reshape(2, rows, columns)
    else:
        row = width + width % 2
        chroma = buffer[width * height :][: rows * row].reshape(rows, row)[:, : 2 * columns]
        u, v = (chroma[:, 0::2], chroma[:, 1::2]) if format == "YUV_NV12" else (chroma[:, 1::2], chroma[:, 0::2])
    return y, *(plane.repeat(2, 0).repeat(2, 1)[:height, :width] for plane in (u, v))


def to_rgba(pixels, format):
    """(H, W, C) of a packed format → float64 (H, W, 4)."""
    pixels = pixels.astype(np.float64)
    named = dict(zip(ORDER[format], np.moveaxis(pixels, -1, 0), strict=True))
    if format == "GRAY":
        named |= {"R": named["L"], "G": named["L"], "B": named["L"]}
    if format == "HSV":
        rgb = [[np.multiply(colorsys.hsv_to_rgb(h / 180, s / 255, v / 255), 255) for h, s, v in row] for row in pixels]
        named |= dict(zip("RGB", np.moveaxis(np.array(rgb), -1, 0), strict=True))
    alpha = named.get("A", np.full(pixels.shape[:2], 255.0))
    return np.stack([named["R"], named["G"], named["B"], alpha], -1)


def from_rgba(rgba, format):
    """float64 (H, W, 4) → (H, W, C) of a packed format."""
    r, g, b, a = np.moveaxis(rgba, -1, 0)
    named = {"R": r, "G": g, "B": b, "A": a, "L": 0.299 * r + 0.587 * g + 0.114 * b}
    if format == "HSV":
        hsv = [[colorsys.rgb_to_hsv(*pixel[:3]) for pixel in row] for row in rgba]
        hsv = np.array(hsv) * [180, 255, 1]
        named |= dict(zip("HSV", np.moveaxis(hsv, -1, 0), strict=True))
    return np.stack([named[letter] for letter in ORDER[format]], -1)


def positions(matrix, width, height):
    """Source x and y of every destination pixel."""
    x, y, w = np.einsum(
        "ij,jhw->ihw", np.asarray(matrix, np.float64), np.stack([*np.meshgrid(range(width), range(height)), np.ones((height, width))])
    )
    return x / w, y / w


def pixel(image, x, y, wrap, outside):
    """image[y, x] for integer arrays x, y."""
    height, width = image.shape[:2]
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    if wrap == "repeat":
        return image[y % height, x % width]
    value = image[np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)]
    return value if wrap == "clamp_to_edge" else np.where(inside[..., None], value, outside)


def kernel(filter, distance, a=-0.75):
    """A filter's weight at a distance."""
    d = np.abs(distance)
    if filter == "bilinear":
        return np.maximum(1 - d, 0)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def sample(image, x, y, filter, wrap, outside, a=-0.75):
    """float64 (H, W, C) at the positions x, y."""
    if filter == "nearest":
        return pixel(image, np.floor(x + 0.5).astype(int), np.floor(y + 0.5).astype(int), wrap, outside)
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    total = 0.0
    for j in range(-1, 3):
        for i in range(-1, 3):
            weight = kernel(filter, x - (left + i), a) * kernel(filter, y - (top + j), a)
            total = total + weight[..., None] * pixel(image, left + i, top + j, wrap, outside)
    return total
