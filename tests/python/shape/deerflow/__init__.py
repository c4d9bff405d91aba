# SPDX-License-Identifier: Apache-2.0
"""The classes that a sandbox of DeerFlow is built on, in shape only: what CI has of it."""
