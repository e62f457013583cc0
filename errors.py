"""The exceptions that mnnx raises. Every one derives from `MnnxError`; a message says what is wrong, where, and what to do next."""


class MnnxError(Exception):
    """Base class of all errors raised by mnnx."""


class ConversionError(MnnxError):
    """A source model can't be expressed as an .mnnx model; names the node, its op and what stands in the way."""


class UnsupportedOperator(ConversionError):
    """The source model holds operators that mnnx doesn't know; lists ALL of them with their node names."""


class ModelFormatError(MnnxError):
    """An .mnnx file is damaged, cut short, or asks for something that no legal file asks for."""


class BackendError(MnnxError):
    """A device failed, or can't do what was asked of it."""


class BackendUnavailable(BackendError):
    """The named backend isn't known, or its driver or device isn't there."""


class InputError(MnnxError):
    """A value fed to a model doesn't fit: names the input or op, what it got and what it wants."""


class UnknownName(InputError, KeyError):
    """A session has no input or output of that name; lists those that it has. A KeyError too, as it comes from indexing."""

    __str__ = Exception.__str__  # KeyError shows its message in quotes


class SessionStateError(MnnxError):
    """A session was used in a state that doesn't allow it: released, running in another thread, or with an input never set."""


class LimitExceeded(MnnxError):
    """A model asks for more memory or iterations than its limits allow (see `mnnx.Limits`)."""
