# SPDX-License-Identifier: Apache-2.0
from abc import ABC, abstractmethod


class Sandbox(ABC):
    persistent_shell_sessions: "bool | None" = None

    def __init__(self, id: str):
        self._id = id

    @property
    def id(self) -> str:
        return self._id

    @abstractmethod
    def execute_command(self, command, env=None, timeout=None): ...

    def execute_command_in_scope(self, command, env=None, timeout=None, *, scope_id=None):
        return self.execute_command(command, env=env, timeout=timeout)

    def release_command_scope(self, scope_id): ...

    @abstractmethod
    def read_file(self, path, start_line=None, end_line=None): ...

    @abstractmethod
    def download_file(self, path): ...

    @abstractmethod
    def list_dir(self, path, max_depth=2): ...

    @abstractmethod
    def write_file(self, path, content, append=False): ...

    @abstractmethod
    def glob(self, path, pattern, *, include_dirs=False, max_results=200): ...

    @abstractmethod
    def grep(self, path, pattern, *, glob=None, literal=False, case_sensitive=False,
             max_results=100): ...

    @abstractmethod
    def update_file(self, path, content): ...
