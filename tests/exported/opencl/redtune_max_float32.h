// max of float32: the largest value; NaN wins.
// How to call what redtune_max_float32.c has.
//
// Made by: redtune export --op max --format opencl --out DIR
// SPDX-License-Identifier: MIT
//
// Takes an array of n elements; gives float32, accumulated in float32.
// Determinism: any order of the additions was allowed; repeated runs showed run-to-run.
//
// v0: cpu, 268435456 elements
//   Measured 2026-11-30 on A cpu (cpu), driver 1.2.3, a compiler 1.0:
//   236.74 us, spread 0.25 us, 4535.6 GB/s cold, 99.7 % of the read ceiling, the best of 95 trials with seed 0.
//   Beside it: the default config 239.69 us, cupy 14.2.0 249.81 us.
//   block = 256: threads per block
//   vector = 1: elements per load, at most 16 bytes
//   items = 4: independent loads in flight per thread before the fold
//   accumulators = 4: independent fold chains per thread and tile
//   walk = stride: which tiles a block takes: one of its own, every grid-th, or one contiguous range
//   blocks_per_cu = 2: blocks in the grid per compute unit
//   team = 0: threads that share a row or column, 0 for all of a block
//   split = 1: blocks that share a row or column
//   exchange = shuffle: how the lanes of a block meet
//   wave = 32: lanes the last tree spans before the threads of a block meet through shared memory
//   combine = last_block: how the blocks meet
//   hint = none: cache hint of the loads

#ifndef REDTUNE_MAX_FLOAT32_H
#define REDTUNE_MAX_FLOAT32_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120  // what the host calls need; the kernels may need a newer OpenCL C
#endif
#ifdef __APPLE__
#include <OpenCL/opencl.h>
#else
#include <CL/cl.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

// The kernels, built for a device. One reduction, from the beginning to the end:
//
//     redtune_max_float32_create(&handle, context, device);
//     redtune_max_float32_workspace(handle, n, &bytes);
//     workspace = clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, &error);
//     redtune_max_float32_run(handle, queue, in, 0, n, out, workspace, CL_TRUE, 0, NULL, NULL);
//     redtune_max_float32_release(handle);
//
// A launch sets the arguments of a kernel, and two threads must not set them at once: a handle is for one thread at a
// time. Make one for each thread.
typedef struct redtune_max_float32 redtune_max_float32_t;

// Builds the kernels for a device of a context. Nothing is printed.
//
// An error leaves a handle too, for redtune_max_float32_build_log and to be released; only without memory is it NULL.
cl_int redtune_max_float32_create(redtune_max_float32_t **handle, cl_context context, cl_device_id device);

// What the compiler said of a kernel that could not be built; an empty text if all could.
const char *redtune_max_float32_build_log(const redtune_max_float32_t *handle);

// How many bytes of workspace a run needs for arrays of this size: at least 1, so that there is a buffer to make.
cl_int redtune_max_float32_workspace(const redtune_max_float32_t *handle, cl_long n, size_t *bytes);

// The max of n elements goes to out[0].
//
// Puts the kernels on a queue and returns: nothing is printed, nothing waits. Everything lies in buffers:
// - `in`: float32, the first element at `in_first`, counted in elements.
// - `out`: float32.
// - `workspace`: a buffer of its own, not a sub-buffer, of as many bytes as redtune_max_float32_workspace says.
// - `is_fresh`: whether the workspace may hold anything. One that an earlier run of this very size has used, and nothing
//   else since, is ready as it is: CL_FALSE spares a command.
// - `waits`, `wait`: so many events that have to come first, as for any other command. The queue may be out of order.
// - `event`: is done when the results are there; NULL if nobody asks.
//
// Returns an error of OpenCL, or
// - CL_INVALID_VALUE for a size below zero, or no elements: they have no max,
// - CL_INVALID_BUFFER_SIZE for a buffer that is too small,
// - CL_INVALID_GLOBAL_WORK_SIZE for more blocks than can be counted.
cl_int redtune_max_float32_run(
    redtune_max_float32_t *handle, cl_command_queue queue, cl_mem in, size_t in_first, cl_long n, cl_mem out,
    cl_mem workspace, cl_bool is_fresh, cl_uint waits, const cl_event *wait, cl_event *event);

// For measurements: makes a handle use a kernel whatever the size, by its number; with -1 it picks one again.
cl_int redtune_max_float32_force(redtune_max_float32_t *handle, int variant);

// Gives everything back; commands that are on their way still end. NULL is allowed.
void redtune_max_float32_release(redtune_max_float32_t *handle);

#ifdef __cplusplus
}
#endif

#endif
