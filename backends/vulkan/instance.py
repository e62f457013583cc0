"""The process's Vulkan instance, and what devices it shows."""

from __future__ import annotations

import os
from typing import Any

from mnnx.backends.vulkan.api import INSTALL, LAYER_NOT_PRESENT, Api, load
from mnnx.errors import BackendUnavailable
from mnnx.schema.log import log

#: Turns the validation layers on, with synchronization validation; their messages go to `Instance.messages` and the log.
VALIDATE = "MNNX_VULKAN_VALIDATE"
VERSION = 1 << 22 | 1 << 12  # 1.1
_LAYER = "VK_LAYER_KHRONOS_validation"
_KINDS = {1: "gpu", 2: "gpu", 3: "gpu", 4: "cpu"}


class PhysicalDevice:
    """One that the driver shows. integrated: it has its memory in common with the CPU. largest_allocation: in bytes."""

    def __init__(self, api: Api, handle: Any):
        self.handle = handle
        self.properties = api.ffi.new("VkPhysicalDeviceProperties *")
        api.lib.vkGetPhysicalDeviceProperties(handle, self.properties)
        self.limits = self.properties.limits
        self.name = api.ffi.string(self.properties.deviceName).decode()
        self.kind = _KINDS.get(self.properties.deviceType, "other")
        memory = api.struct("VkPhysicalDeviceMaintenance3Properties")
        if self.version >= VERSION:
            api.lib.vkGetPhysicalDeviceProperties2(handle, api.struct("VkPhysicalDeviceProperties2", pNext=memory))
        self.largest_allocation = memory.maxMemoryAllocationSize
        self.integrated = self.properties.deviceType in (1, 4)
        rows = api.each(api.lib.vkEnumerateDeviceExtensionProperties, "VkExtensionProperties", handle, api.NULL)
        self.extensions = {api.ffi.string(row.extensionName).decode() for row in rows}

    @property
    def version(self) -> int:
        return self.properties.apiVersion


class Instance:
    """Raises BackendUnavailable where there is no driver."""

    def __init__(self) -> None:
        self.api = api = load()
        self.messages: list[str] = []
        self._messenger = None
        validate = os.environ.get(VALIDATE) == "1"
        settings = self._validation() if validate else api.NULL
        names = [api.ffi.new("char[]", name) for name in ((_LAYER.encode(), b"VK_EXT_debug_utils") if validate else ())]
        layers, extensions = api.array("char *", names[:1]), api.array("char *", names[1:])
        info = api.struct(
            "VkInstanceCreateInfo",
            pNext=settings,
            pApplicationInfo=api.struct("VkApplicationInfo", apiVersion=VERSION),
            enabledLayerCount=len(layers),
            ppEnabledLayerNames=layers,
            enabledExtensionCount=len(extensions),
            ppEnabledExtensionNames=extensions,
        )
        place = api.ffi.new("VkInstance *")
        code = api.lib.vkCreateInstance(info, api.NULL, place)
        if code == LAYER_NOT_PRESENT:
            raise BackendUnavailable(f"{VALIDATE}=1 needs {_LAYER} (on Debian: apt-get install vulkan-validationlayers)")
        if code < 0:
            raise BackendUnavailable(f"no Vulkan driver was found ({api.name_of(code)}): {INSTALL}")
        self.handle = place[0]
        if validate:
            self._listen()

    def devices(self) -> list[PhysicalDevice]:
        """Those that can Vulkan 1.1 and compute."""
        api = self.api
        found = [PhysicalDevice(api, handle) for handle in api.each(api.lib.vkEnumeratePhysicalDevices, "VkPhysicalDevice", self.handle)]
        return [device for device in found if device.version >= VERSION]

    def _validation(self) -> Any:
        api = self.api
        chosen = api.array("VkValidationFeatureEnableEXT", [api.lib.VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT])
        return api.struct("VkValidationFeaturesEXT", enabledValidationFeatureCount=1, pEnabledValidationFeatures=chosen)

    def _listen(self) -> None:
        """Collects the layers' warnings and errors."""
        api, messages = self.api, self.messages

        def receive(severity: int, kinds: int, data: Any, user: Any) -> int:
            text = api.ffi.string(data.pMessage).decode()
            messages.append(text)
            log().error("Vulkan validation: %s", text)
            return 0

        self._callback = api.ffi.callback("PFN_vkDebugUtilsMessengerCallbackEXT", receive)
        info = api.struct(
            "VkDebugUtilsMessengerCreateInfoEXT",
            messageSeverity=0x1100,  # warnings and errors
            messageType=7,
            pfnUserCallback=self._callback,
        )
        create = self._extension("vkCreateDebugUtilsMessengerEXT")
        place = api.ffi.new("VkDebugUtilsMessengerEXT *")
        api.check(create(self.handle, info, api.NULL, place), "vkCreateDebugUtilsMessengerEXT")
        self._messenger = place[0]

    def _extension(self, name: str) -> Any:
        api = self.api
        return api.ffi.cast(f"PFN_{name}", api.lib.vkGetInstanceProcAddr(self.handle, name.encode()))

    def destroy(self) -> None:
        """When its devices are gone."""
        if self._messenger is not None:
            self._extension("vkDestroyDebugUtilsMessengerEXT")(self.handle, self._messenger, self.api.NULL)
        self.api.lib.vkDestroyInstance(self.handle, self.api.NULL)
