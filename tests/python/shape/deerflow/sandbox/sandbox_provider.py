# SPDX-License-Identifier: Apache-2.0
import asyncio
from abc import ABC, abstractmethod


class SandboxProvider(ABC):
    uses_thread_data_mounts: bool = False
    needs_upload_permission_adjustment: bool = True

    @abstractmethod
    def acquire(self, thread_id=None, *, user_id=None): ...

    async def acquire_async(self, thread_id=None, *, user_id=None):
        return await asyncio.to_thread(self.acquire, thread_id, user_id=user_id)

    @abstractmethod
    def get(self, sandbox_id): ...

    @abstractmethod
    def release(self, sandbox_id): ...

    def reset(self): ...
