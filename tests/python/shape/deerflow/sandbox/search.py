# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass


@dataclass(frozen=True)
class GrepMatch:
    path: str
    line_number: int
    line: str
