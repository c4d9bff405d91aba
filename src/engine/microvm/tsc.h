/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MICROVM_TSC_H
#define ENGINE_MICROVM_TSC_H

#include <stdint.h>

/*
 * The host's time stamp counter in kHz, measured against CLOCK_MONOTONIC over
 * about ten milliseconds of sleep; 0 when it cannot be had. An emulated guest
 * reads this counter and hangs while it tries to calibrate it by itself.
 */
uint32_t tsc_khz(void);

#endif
