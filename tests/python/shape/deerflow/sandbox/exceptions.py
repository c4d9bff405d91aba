# SPDX-License-Identifier: Apache-2.0
class SandboxError(Exception):
    pass


class SandboxCapacityExceededError(SandboxError):
    def __init__(self, message="", *, active=0, warm=0, reserved=0, replicas=0,
                 retry_after_seconds=5.0, reason="capacity"):
        super().__init__(message)
        self.active, self.warm, self.reserved, self.replicas = active, warm, reserved, replicas
        self.retry_after_seconds, self.reason = retry_after_seconds, reason
