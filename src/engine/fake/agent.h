/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_FAKE_AGENT_H
#define ENGINE_FAKE_AGENT_H

#include <stdint.h>

/*
 * Plays the agent of a box over `fd` (a stream socket) until it is shut down or
 * the socket closes; returns the exit code for its process: 0 when the guest
 * powered off. The commands are built in (see the table in jobs.c); nothing is
 * ever executed and no file is touched.
 */
int fake_agent_run(int fd, int root_fd, uint64_t memory_bytes, uint32_t vcpus, uint64_t generation);

#endif
