"""Work on a device's queue, one piece at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mnnx.backends.vulkan.device import VulkanDevice

_TIMEOUT = 2
_SECOND = 10**9


class Submission:
    """What a session, or another user of the queue, has submitted last."""

    def __init__(self, device: VulkanDevice):
        api = device.api
        self._device = device
        self._fence = api.make("vkCreateFence", "VkFence", device.handle, api.struct("VkFenceCreateInfo"), api.NULL)
        self._fences = api.array("VkFence", [self._fence])
        self._lib = api.lib
        self._pending = False
        device.keep(self, ("vkDestroyFence", self._fence))

    def submit(self, info: Any) -> None:
        """Starts a VkSubmitInfo's work when the one before is done. Raises BackendError."""
        device = self._device
        if self._pending:
            self.wait()
        device.check_usable()
        with device.queue_lock:
            code = self._lib.vkQueueSubmit(device.queue, 1, info, self._fence)
        if code:
            device.fail(code, "vkQueueSubmit")
        self._pending = True

    def wait(self) -> None:
        """Until it is done. Raises BackendError where the device failed."""
        if not self._pending:
            return
        device, lib = self._device, self._lib
        device.owner.check()
        while (code := lib.vkWaitForFences(device.handle, 1, self._fences, 1, _SECOND)) == _TIMEOUT:
            pass  # back in Python every second, so that signals are seen
        self._pending = False
        if code:
            device.fail(code, "vkWaitForFences")
        code = lib.vkResetFences(device.handle, 1, self._fences)
        if code:
            device.fail(code, "vkResetFences")
