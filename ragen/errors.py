"""The few errors a user can meet; each message says what was expected, what arrived and what to do next."""


class RagenError(Exception):
    """Base of all errors that are reported to the user without a traceback."""


class ConfigError(RagenError):
    """A configuration value is unknown, of the wrong type, or contradicts another one."""


class MissingExtra(RagenError):
    """An optional package is needed; the message holds the install command."""


class ModelUnavailable(RagenError):
    """A model can neither be found locally nor fetched."""


class ChatTemplateError(RagenError):
    """A chat template cannot be continued turn by turn."""


class WorkerError(RagenError):
    """A process of a run on several devices died, failed or hung; the message says which one, where and what to do."""


class EngineError(RagenError):
    """The engine that writes the replies failed: no memory, no endpoint, no answer."""
