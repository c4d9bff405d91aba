# SPDX-License-Identifier: Apache-2.0
"""cubby.h in ctypes. tests/python/test_abi.py compares it with the header."""

from __future__ import annotations

from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_int, c_int32,
                    c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p)
from typing import Any

ERROR_MESSAGE_MAX = 3072

LOG_FN = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
PROGRESS_FN = CFUNCTYPE(None, c_void_p, c_char_p, c_char_p, c_uint64, c_uint64)
LOG_LINE_FN = CFUNCTYPE(c_int, c_void_p, c_int, c_int64, c_void_p, c_size_t)
COPY_PROGRESS_FN = CFUNCTYPE(c_bool, c_void_p, c_uint64, c_uint64, c_uint64)

strings = POINTER(c_char_p)

# enum cubby_code, in order
CODES = (
    "OK", "E_SYSTEM", "E_NO_MEMORY", "E_INVALID", "E_NOT_FOUND", "E_EXISTS", "E_BUSY", "E_STATE",
    "E_TIMEOUT", "E_CLOSED", "E_CANCELLED", "E_PROTOCOL", "E_BOX_DEAD", "E_VMM", "E_KERNEL",
    "E_UNSUPPORTED", "E_PERMISSION", "E_IMAGE", "E_DIGEST", "E_LIMIT", "E_NO_SPACE", "E_CORRUPT",
    "E_VERSION", "E_EXEC_NOT_FOUND", "E_EXEC_REFUSED", "E_CAPACITY", "E_IDENTITY", "E_SHUTDOWN")
# enum cubby_box_state, in order
BOX_STATES = ("CREATED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "SUSPENDED")
# enum cubby_log_level, in order
LOG_LEVELS = ("ERROR", "WARNING", "INFO", "DEBUG")
# enum cubby_served from 1, in order
SERVED = ("REUSED", "RECLAIMED", "SPARE", "CLONED", "BOOTED")
# enum cubby_event_kind
EVENT_STDOUT, EVENT_STDERR, EVENT_EXIT = 1, 2, 3
# enum cubby_watch_kind from 1, in order
WATCH_KINDS = ("CREATED", "WRITTEN", "REMOVED", "RENAMED", "ATTRIBUTES", "OVERFLOW")


class CubbyError(Structure):
    _name_ = "cubby_error"
    _fields_ = [("code", c_int), ("sys_errno", c_int), ("message", c_char * ERROR_MESSAGE_MAX)]


# home, images, kernels

class OpenOptions(Structure):
    _name_ = "cubby_open_options"
    _fields_ = [("size", c_size_t), ("home", c_char_p), ("log", LOG_FN), ("log_data", c_void_p),
                ("progress", PROGRESS_FN), ("progress_data", c_void_p)]


class ImageInfo(Structure):
    _name_ = "cubby_image_info"
    _fields_ = [("id", c_char_p), ("name", c_char_p), ("architecture", c_char_p),
                ("disk_bytes", c_uint64), ("created_ns", c_int64)]


class ImageList(Structure):
    _name_ = "cubby_image_list"
    _fields_ = [("images", POINTER(ImageInfo)), ("count", c_size_t)]


class ImportOptions(Structure):
    _name_ = "cubby_import_options"
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("platform", c_char_p),
                ("timeout_ms", c_int64)]


class KernelInfo(Structure):
    _name_ = "cubby_kernel_info"
    _fields_ = [("version", c_char_p), ("digest", c_char_p), ("disk_bytes", c_uint64),
                ("is_default", c_bool)]


class KernelList(Structure):
    _name_ = "cubby_kernel_list"
    _fields_ = [("kernels", POINTER(KernelInfo)), ("count", c_size_t)]


# boxes

class BoxOptions(Structure):
    _name_ = "cubby_box_options"
    _fields_ = [("size", c_size_t), ("image", c_char_p), ("name", c_char_p),
                ("hostname", c_char_p), ("command", strings), ("entrypoint", strings),
                ("no_main", c_bool), ("env", strings), ("workdir", c_char_p), ("user", c_char_p),
                ("labels", strings), ("tty", c_bool), ("open_stdin", c_bool),
                ("memory_bytes", c_uint64), ("cpu_milli", c_uint32), ("disk_bytes", c_uint64),
                ("pids_max", c_uint32), ("engine", c_char_p), ("accel", c_char_p),
                ("kernel", c_char_p), ("ttl_ms", c_int64), ("boot_timeout_ms", c_int64),
                ("auto_remove", c_bool), ("stop_signal", c_char_p), ("no_template", c_bool),
                ("warmup", c_char_p)]


class BoxInfo(Structure):
    _name_ = "cubby_box_info"
    _fields_ = [("id", c_char_p), ("name", c_char_p), ("image_name", c_char_p),
                ("image_id", c_char_p), ("command", c_char_p), ("engine", c_char_p),
                ("isolation", c_char_p), ("served", c_char_p), ("reason", c_char_p),
                ("detail", c_char_p), ("state", c_int), ("exit_code", c_int), ("oom", c_bool),
                ("created_ns", c_int64), ("started_ns", c_int64), ("finished_ns", c_int64),
                ("generation", c_uint64), ("shim_pid", c_int64)]


class BoxList(Structure):
    _name_ = "cubby_box_list"
    _fields_ = [("boxes", POINTER(BoxInfo)), ("count", c_size_t)]


class BoxStats(Structure):
    _name_ = "cubby_box_stats"
    _fields_ = [("uptime_ms", c_uint64), ("cpu_us", c_uint64), ("memory_total", c_uint64),
                ("memory_available", c_uint64), ("memory_workload", c_uint64),
                ("disk_total", c_uint64), ("disk_free", c_uint64), ("processes", c_uint32),
                ("host_cpu_us", c_uint64), ("host_pss_bytes", c_uint64)]


class Process(Structure):
    _name_ = "cubby_process"
    _fields_ = [("pid", c_uint32), ("parent", c_uint32), ("uid", c_uint32), ("state", c_char),
                ("cpu_us", c_uint64), ("rss_bytes", c_uint64), ("age_ms", c_uint64),
                ("command", c_char * 257)]


class LogOptions(Structure):
    _name_ = "cubby_log_options"
    _fields_ = [("size", c_size_t), ("follow", c_bool), ("since_ns", c_int64),
                ("tail_lines", c_int64)]


# commands

class ExecOptions(Structure):
    _name_ = "cubby_exec_options"
    _fields_ = [("size", c_size_t), ("argv", strings), ("env", strings), ("workdir", c_char_p),
                ("user", c_char_p), ("tty", c_bool), ("rows", c_uint16), ("columns", c_uint16),
                ("open_stdin", c_bool), ("detach", c_bool), ("timeout_ms", c_int64)]


class Exit(Structure):
    _name_ = "cubby_exit"
    _fields_ = [("code", c_int), ("signal", c_int), ("timed_out", c_bool), ("oom", c_bool),
                ("incomplete", c_bool), ("user_us", c_uint64), ("system_us", c_uint64),
                ("max_rss_bytes", c_uint64)]


class Event(Structure):
    _name_ = "cubby_event"
    _fields_ = [("kind", c_int), ("data", c_void_p), ("size", c_size_t), ("exit", Exit)]


# the provider

class ProviderOptions(Structure):
    _name_ = "cubby_provider_options"
    _fields_ = [("size", c_size_t), ("config_file", c_char_p), ("config_text", c_char_p),
                ("leave", c_bool)]


class AcquireOptions(Structure):
    _name_ = "cubby_acquire_options"
    _fields_ = [("size", c_size_t), ("user", c_char_p), ("user_size", c_size_t),
                ("thread", c_char_p), ("thread_size", c_size_t), ("timeout_ms", c_int64),
                ("trace", c_char_p), ("no_user", c_bool)]


class Acquired(Structure):
    _name_ = "cubby_acquired"
    _fields_ = [("id", c_char * 17), ("served", c_int), ("fresh", c_bool),
                ("generation", c_uint64), ("box", c_void_p)]


class Latency(Structure):
    _name_ = "cubby_latency"
    _fields_ = [("count", c_uint64), ("total_us", c_uint64), ("max_us", c_uint64)]


class ProviderStatus(Structure):
    _name_ = "cubby_provider_status"
    _fields_ = [*[(name, c_uint32) for name in
                  ("active", "warm", "reserved", "replicas", "queued", "keys")],
                *[(name, c_uint64) for name in
                  ("reused", "reclaimed", "skipped", "spare", "cloned", "booted", "failed",
                   "cancelled", "waited", "refused", "adopted", "released", "check_failed",
                   "evicted", "reaped", "invalidated", "lost")],
                *[(name, Latency) for name in
                  ("acquire", "reclaim", "check", "create", "destroy")]]


# templates, upkeep

class TemplateInfo(Structure):
    _name_ = "cubby_template_info"
    _fields_ = [("key", c_char_p), ("image_id", c_char_p), ("image_name", c_char_p),
                ("snapshot", c_char_p), ("problem", c_char_p), ("memory_bytes", c_uint64),
                ("disk_bytes", c_uint64), ("vcpus", c_uint32), ("usage_bytes", c_uint64),
                ("spares", c_uint32), ("spares_wanted", c_uint32), ("created_ns", c_int64),
                ("used_ns", c_int64)]


class TemplateList(Structure):
    _name_ = "cubby_template_list"
    _fields_ = [("templates", POINTER(TemplateInfo)), ("count", c_size_t)]


class PruneOptions(Structure):
    _name_ = "cubby_prune_options"
    _fields_ = [("size", c_size_t), ("dry_run", c_bool), ("template_bytes", c_uint64)]


# files, search, copies

class FileOptions(Structure):
    _name_ = "cubby_file_options"
    _fields_ = [("size", c_size_t), ("user", c_char_p), ("timeout_ms", c_int64)]


class FileInfo(Structure):
    _name_ = "cubby_file_info"
    _fields_ = [("path", c_char_p), ("target", c_char_p), ("type", c_int), ("mode", c_uint32),
                ("uid", c_uint32), ("gid", c_uint32), ("links", c_uint32), ("bytes", c_uint64),
                ("disk_bytes", c_uint64), ("inode", c_uint64), ("device_major", c_uint32),
                ("device_minor", c_uint32), ("modified_ns", c_int64), ("changed_ns", c_int64),
                ("accessed_ns", c_int64)]


class FileList(Structure):
    _name_ = "cubby_file_list"
    _fields_ = [("files", POINTER(FileInfo)), ("count", c_size_t), ("truncated", c_bool)]


class ListOptions(Structure):
    _name_ = "cubby_list_options"
    _fields_ = [("size", c_size_t), ("file", FileOptions), ("depth", c_int32),
                ("max_entries", c_uint32), ("all_types", c_bool)]


class WriteOptions(Structure):
    _name_ = "cubby_write_options"
    _fields_ = [("size", c_size_t), ("file", FileOptions), ("append", c_bool),
                ("no_parents", c_bool), ("exclusive", c_bool), ("no_sync", c_bool),
                ("mode", c_int32), ("owner", c_char_p)]


class SearchOptions(Structure):
    _name_ = "cubby_search_options"
    _fields_ = [("size", c_size_t), ("file", FileOptions), ("max_results", c_uint32),
                ("include_folders", c_bool), ("literal", c_bool), ("case_sensitive", c_bool),
                ("glob", c_char_p)]


class GlobResult(Structure):
    _name_ = "cubby_glob_result"
    _fields_ = [("paths", strings), ("count", c_size_t), ("truncated", c_bool)]


class Match(Structure):
    _name_ = "cubby_match"
    _fields_ = [("path", c_char_p), ("line", c_uint64), ("text", c_void_p),
                ("text_size", c_size_t)]


class GrepResult(Structure):
    _name_ = "cubby_grep_result"
    _fields_ = [("matches", POINTER(Match)), ("count", c_size_t), ("truncated", c_bool)]


class WatchEvent(Structure):
    _name_ = "cubby_watch_event"
    _fields_ = [("kind", c_int), ("folder", c_bool), ("path", c_char_p), ("from", c_char_p)]


class CopyOptions(Structure):
    _name_ = "cubby_copy_options"
    _fields_ = [("size", c_size_t), ("file", FileOptions), ("archive", c_bool),
                ("follow", c_bool), ("owner", c_char_p), ("progress", COPY_PROGRESS_FN),
                ("progress_data", c_void_p)]


# An opaque handle, an out-parameter, or memory of any kind: a pointer to ctypes.
_p = c_void_p
_s = c_char_p

# name: (result, arguments)
PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "cubby_code_name": (_s, [c_int]),
    "cubby_version": (_s, []),
    "cubby_open": (c_int, [_p, _p, _p]),
    "cubby_close": (None, [_p]),
    "cubby_home": (_s, [_p]),
    "cubby_free": (None, [_p]),
    "cubby_image_import": (c_int, [_p, _s, _p, _p, _p]),
    "cubby_image_info_clear": (None, [_p]),
    "cubby_images": (c_int, [_p, _p, _p]),
    "cubby_image_list_free": (None, [_p]),
    "cubby_image_inspect": (c_int, [_p, _s, _p, _p]),
    "cubby_image_remove": (c_int, [_p, _s, c_bool, _p]),
    "cubby_image_tag": (c_int, [_p, _s, _s, _p]),
    "cubby_kernel_ensure": (c_int, [_p, _s, _p, _p]),
    "cubby_kernels": (c_int, [_p, _p, _p]),
    "cubby_kernel_list_free": (None, [_p]),
    "cubby_box_state_name": (_s, [c_int]),
    "cubby_box_create": (c_int, [_p, _p, _p, _p]),
    "cubby_box_open": (c_int, [_p, _s, _p, _p]),
    "cubby_box_close": (None, [_p]),
    "cubby_box_id": (_s, [_p]),
    "cubby_box_start": (c_int, [_p, _p]),
    "cubby_box_stop": (c_int, [_p, c_int64, _p]),
    "cubby_box_kill": (c_int, [_p, c_int, _p]),
    "cubby_box_pause": (c_int, [_p, _p]),
    "cubby_box_unpause": (c_int, [_p, _p]),
    "cubby_box_suspend": (c_int, [_p, _p]),
    "cubby_box_resume": (c_int, [_p, _p]),
    "cubby_box_fork": (c_int, [_p, _p, c_size_t, _p, _p, _p]),
    "cubby_box_snapshot": (c_int, [_p, _s, _p]),
    "cubby_box_continue": (c_int, [_p, _s, _p, _p, _p]),
    "cubby_box_remove": (c_int, [_p, c_bool, _p]),
    "cubby_box_rename": (c_int, [_p, _s, _p]),
    "cubby_box_wait": (c_int, [_p, c_int64, _p, _p]),
    "cubby_box_ping": (c_int, [_p, c_int64, _p]),
    "cubby_box_get_info": (c_int, [_p, _p, _p]),
    "cubby_box_info_clear": (None, [_p]),
    "cubby_boxes": (c_int, [_p, c_bool, _p, _p]),
    "cubby_box_list_free": (None, [_p]),
    "cubby_box_inspect": (c_int, [_p, _p, _p]),
    "cubby_box_get_stats": (c_int, [_p, _p, _p]),
    "cubby_box_processes": (c_int, [_p, _p, _p, _p, _p]),
    "cubby_box_logs": (c_int, [_p, _p, LOG_LINE_FN, _p, _p]),
    "cubby_exec_start": (c_int, [_p, _p, _p, _p]),
    "cubby_box_attach": (c_int, [_p, c_bool, _p, _p]),
    "cubby_exec_next": (c_int, [_p, c_int64, _p, _p]),
    "cubby_exec_fd": (c_int, [_p]),
    "cubby_exec_write": (c_int64, [_p, _p, c_size_t, c_int64, _p]),
    "cubby_exec_close_stdin": (c_int, [_p, _p]),
    "cubby_exec_signal": (c_int, [_p, c_int, _p]),
    "cubby_exec_resize": (c_int, [_p, c_uint16, c_uint16, _p]),
    "cubby_exec_pid": (c_uint32, [_p]),
    "cubby_exec_close": (None, [_p]),
    "cubby_provider_open": (c_int, [_p, _p, _p, _p]),
    "cubby_provider_close": (None, [_p]),
    "cubby_provider_acquire": (c_int, [_p, _p, _p, _p]),
    "cubby_provider_acquire_async": (c_int, [_p, _p, _p, _p]),
    "cubby_request_fd": (c_int, [_p]),
    "cubby_request_finish": (c_int, [_p, c_int64, _p, _p]),
    "cubby_request_cancel": (None, [_p]),
    "cubby_request_close": (None, [_p]),
    "cubby_provider_get": (c_int, [_p, _s, _p, _p]),
    "cubby_provider_release": (c_int, [_p, _s, _p]),
    "cubby_provider_reset": (c_int, [_p, _p]),
    "cubby_provider_shutdown": (c_int, [_p, c_int64, _p, _p]),
    "cubby_provider_get_status": (c_int, [_p, _p, _p]),
    "cubby_scope_token": (c_int, [_p, c_size_t, _p, c_size_t, _p, _p]),
    "cubby_is_scope_token": (c_bool, [_s]),
    "cubby_pool_status": (c_int, [_p, _s, _p, _p]),
    "cubby_pool_release": (c_int, [_p, _p, _s, _p]),
    "cubby_pool_drain": (c_int, [_p, _s, _p, _p, _p]),
    "cubby_templates": (c_int, [_p, _p, _p]),
    "cubby_template_list_free": (None, [_p]),
    "cubby_template_build": (c_int, [_p, _p, c_bool, _p]),
    "cubby_template_remove": (c_int, [_p, _s, _p]),
    "cubby_template_inspect": (c_int, [_p, _s, _p, _p]),
    "cubby_template_verify": (c_int, [_p, _s, _p]),
    "cubby_spares_set": (c_int, [_p, _p, c_uint32, _p]),
    "cubby_usage": (c_int, [_p, _p, _p]),
    "cubby_prune": (c_int, [_p, _p, _p, _p]),
    "cubby_doctor": (c_int, [_p, _p, _p]),
    "cubby_gc": (c_int, [_p, _p, _p]),
    "cubby_file_info_clear": (None, [_p]),
    "cubby_file_stat": (c_int, [_p, _s, c_bool, _p, _p, _p]),
    "cubby_file_list_folder": (c_int, [_p, _s, _p, _p, _p]),
    "cubby_file_list_free": (None, [_p]),
    "cubby_file_read": (c_int, [_p, _s, c_uint64, c_uint64, _p, _p, _p, _p]),
    "cubby_file_read_lines": (c_int, [_p, _s, c_uint64, c_uint64, _p, _p, _p, _p]),
    "cubby_file_write": (c_int, [_p, _s, _p, c_size_t, _p, _p]),
    "cubby_file_open_read": (c_int, [_p, _s, c_uint64, _p, _p, _p]),
    "cubby_file_open_write": (c_int, [_p, _s, _p, _p, _p]),
    "cubby_file_next": (c_int64, [_p, _p, c_size_t, c_int64, _p]),
    "cubby_file_put": (c_int64, [_p, _p, c_size_t, c_int64, _p]),
    "cubby_file_commit": (c_int, [_p, c_int64, _p]),
    "cubby_file_close": (None, [_p]),
    "cubby_file_remove": (c_int, [_p, _s, c_bool, _p, _p]),
    "cubby_file_rename": (c_int, [_p, _s, _s, c_bool, _p, _p]),
    "cubby_file_make_folder": (c_int, [_p, _s, c_uint32, c_bool, _p, _p]),
    "cubby_glob": (c_int, [_p, _s, _s, _p, _p, _p]),
    "cubby_glob_result_free": (None, [_p]),
    "cubby_grep": (c_int, [_p, _s, _s, _p, _p, _p, _p]),
    "cubby_grep_result_free": (None, [_p]),
    "cubby_watch_open": (c_int, [_p, _s, c_bool, _p, _p, _p]),
    "cubby_watch_next": (c_int, [_p, c_int64, _p, _p]),
    "cubby_watch_fd": (c_int, [_p]),
    "cubby_watch_close": (None, [_p]),
    "cubby_copy_in": (c_int, [_p, _s, _s, _p, _p]),
    "cubby_copy_out": (c_int, [_p, _s, _s, _p, _p]),
    "cubby_copy_between": (c_int, [_p, _s, _p, _s, _p, _p]),
    "cubby_tar_in": (c_int, [_p, c_int, _s, _p, _p]),
    "cubby_tar_out": (c_int, [_p, _s, c_int, _p, _p]),
}

# Declared by the header, and not needed from Python: why.
NOT_BOUND = {
    "cubby_exec_run": "commands.run reads the events itself, so that Ctrl-C ends the command",
    "cubby_result_clear": "of cubby_exec_run",
    "cubby_served_name": "SERVED has the words",
}
