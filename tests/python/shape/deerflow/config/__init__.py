# SPDX-License-Identifier: Apache-2.0
"""get_app_config().sandbox, with what a test put there."""

from types import SimpleNamespace


class SandboxConfig:
    """Fields with defaults, further ones allowed, and which of them were set."""

    overflow_policy = "wait"
    acquire_timeout = 30
    burst_limit = 0
    bash_command_timeout = 600
    mounts: list = []

    def __init__(self, **given):
        self.__dict__.update(given)
        self.__dict__["model_fields_set"] = set(given)


_config = SimpleNamespace(sandbox=SandboxConfig(use="cubby.deerflow:CubbyProvider"))


def get_app_config():
    return _config


def set_sandbox_config(**given):
    _config.sandbox = SandboxConfig(use="cubby.deerflow:CubbyProvider", **given)
