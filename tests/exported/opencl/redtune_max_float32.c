// max of float32: the largest value; NaN wins.
// The launcher of the kernels.
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

#include "redtune_max_float32.h"

#include <stdlib.h>

// The texts of the kernels, as bytes: see README.md for who makes them.
#include "redtune_max_float32_v0.cl.h"

// The parameters of the kernels, by name.
enum {
    ARG_DATA,
    ARG_DATA_FIRST,
    ARG_N,
    ARG_PARTIALS,
    ARG_COUNTER,
    ARG_OUT,
    ARGS
};

// An entry point with its parameters in their order.
typedef struct {
    const char *entry;
    cl_uint count;
    int args[ARGS];
} Step;

// The launches of a kernel in their order. One without an entry point is none.
enum { BEFORE, MAIN, AFTER, STEPS };

// A kernel, and what its launches are computed from.
typedef struct {
    const unsigned char *text;
    size_t text_bytes;
    const char *options;
    Step steps[STEPS];
    cl_long block, second_block;  // threads per block of the main launch, and of the one after it
    cl_long tile;  // elements that a block folds at once
    cl_long per_unit;  // blocks per compute unit at most; 0 for a block for each tile
    size_t state_bytes;  // of what a block leaves for the others; 0 if it leaves nothing
    size_t counter_bytes;  // of what counts blocks; 0 if nothing does
} Variant;

static const Variant VARIANTS[] = {
    {  // v0: cpu, 268435456 elements
        .text = redtune_max_float32_v0_cl,
        .text_bytes = sizeof redtune_max_float32_v0_cl,
        .options = "-cl-std=CL3.0",
        .steps = {
            [MAIN] = {"redtune_max_float32", 6, {ARG_DATA, ARG_DATA_FIRST, ARG_N, ARG_PARTIALS, ARG_COUNTER, ARG_OUT}},
        },
        .block = 256,
        .second_block = 256,
        .tile = 1024,
        .per_unit = 2,
        .state_bytes = 4,
        .counter_bytes = 4,
    },
};
enum { COUNT = sizeof VARIANTS / sizeof VARIANTS[0] };

typedef redtune_max_float32_t Handle;

struct redtune_max_float32 {
    cl_int error;  // of making it
    char *log;  // the compiler's, or NULL
    cl_long units;
    size_t alignment;  // of a sub-buffer, in bytes
    int forced;  // the kernel to take, or -1
    cl_kernel kernels[COUNT][STEPS];
};

// 1. Making and releasing a handle.

// What launches depend on of the device.
static cl_int ask_device(Handle *handle, cl_device_id device)
{
    cl_uint units = 0;
    cl_uint bits = 0;
    cl_int error = clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
    if (error == CL_SUCCESS)
        error = clGetDeviceInfo(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof bits, &bits, NULL);
    handle->alignment = bits > 8 * sizeof(cl_long) ? bits / 8 : sizeof(cl_long);
    handle->units = units;
    return error;
}

static void keep_log(Handle *handle, cl_program program, cl_device_id device)
{
    size_t bytes = 0;
    if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes) != CL_SUCCESS)
        return;
    handle->log = calloc(bytes + 1, 1);
    if (handle->log != NULL)
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, bytes, handle->log, NULL);
}

// Builds one of the kernels.
static cl_int build(Handle *handle, int which, cl_context context, cl_device_id device)
{
    const Variant *v = &VARIANTS[which];
    const char *text = (const char *)v->text;
    cl_int error = CL_SUCCESS;
    cl_program program = clCreateProgramWithSource(context, 1, &text, &v->text_bytes, &error);
    if (error != CL_SUCCESS)
        return error;
    error = clBuildProgram(program, 1, &device, v->options, NULL, NULL);
    if (error != CL_SUCCESS)
        keep_log(handle, program, device);
    for (int k = 0; k < STEPS && error == CL_SUCCESS; k++)
        if (v->steps[k].entry != NULL)
            handle->kernels[which][k] = clCreateKernel(program, v->steps[k].entry, &error);
    clReleaseProgram(program);  // the kernels keep it
    return error;
}

cl_int redtune_max_float32_create(redtune_max_float32_t **handle, cl_context context, cl_device_id device)
{
    if (handle == NULL)
        return CL_INVALID_VALUE;
    Handle *made = malloc(sizeof *made);
    *handle = made;
    if (made == NULL)
        return CL_OUT_OF_HOST_MEMORY;
    *made = (Handle){.forced = -1};
    made->error = ask_device(made, device);
    for (int which = 0; which < COUNT && made->error == CL_SUCCESS; which++)
        made->error = build(made, which, context, device);
    return made->error;
}

const char *redtune_max_float32_build_log(const redtune_max_float32_t *handle)
{
    return handle != NULL && handle->log != NULL ? handle->log : "";
}

cl_int redtune_max_float32_force(redtune_max_float32_t *handle, int variant)
{
    if (handle == NULL || variant < -1 || variant >= COUNT)
        return CL_INVALID_VALUE;
    handle->forced = variant;
    return CL_SUCCESS;
}

void redtune_max_float32_release(redtune_max_float32_t *handle)
{
    if (handle == NULL)
        return;
    for (int which = 0; which < COUNT; which++)
        for (int k = 0; k < STEPS; k++)
            if (handle->kernels[which][k] != NULL)
                clReleaseKernel(handle->kernels[which][k]);
    free(handle->log);
    free(handle);
}

// 2. What a run is made of.

// A run for arrays of one size. The workspace has first what counts blocks, then what they leave for each other.
typedef struct {
    int which;  // of the kernels
    cl_long results;
    cl_long blocks, parts;  // blocks of the main launch, and those of them that share a result
    size_t counter_bytes, partials_at, partials_bytes;
    size_t workspace_bytes;
} Plan;

static cl_long least(cl_long a, cl_long b)
{
    return a < b ? a : b;
}

static cl_long most(cl_long a, cl_long b)
{
    return a > b ? a : b;
}

// How many pieces of a size cover a length.
static cl_long pieces(cl_long length, cl_long piece)
{
    return length / piece + (length % piece != 0);
}

// Plans a run, or says what is wrong with the sizes. Without results there is nothing to plan.
static cl_int make_plan(const Handle *handle, cl_long n, Plan *plan)
{
    if (handle == NULL)
        return CL_INVALID_VALUE;
    if (handle->error != CL_SUCCESS)
        return handle->error;
    const int which = handle->forced >= 0 ? handle->forced : 0;
    const Variant *v = &VARIANTS[which];
    if (n < 1)
        return CL_INVALID_VALUE;
    *plan = (Plan){.which = which, .results = 1, .workspace_bytes = 1};
    const cl_long tiles = most(1, pieces(n, v->tile));
    plan->blocks = v->per_unit > 0 ? least(tiles, v->per_unit * handle->units) : tiles;
    plan->parts = plan->blocks;
    const size_t partials_bytes = (size_t)plan->parts * v->state_bytes;
    plan->counter_bytes = v->counter_bytes;
    plan->partials_at = (plan->counter_bytes + handle->alignment - 1) / handle->alignment * handle->alignment;
    plan->partials_bytes = partials_bytes;
    if (plan->partials_at + partials_bytes > 0)
        plan->workspace_bytes = plan->partials_at + partials_bytes;
    return CL_SUCCESS;
}

cl_int redtune_max_float32_workspace(const redtune_max_float32_t *handle, cl_long n, size_t *bytes)
{
    Plan plan;
    if (bytes == NULL)
        return CL_INVALID_VALUE;
    const cl_int error = make_plan(handle, n, &plan);
    *bytes = error == CL_SUCCESS ? plan.workspace_bytes : 0;
    return error;
}

// 3. The commands of a run.

// The commands so far, each of which waits for the one before it: the queue may be out of order.
typedef struct {
    cl_command_queue queue;
    cl_uint waits;
    const cl_event *wait;
    cl_event last;
} Chain;

// Lets the next command wait for the one that was just put on the queue.
static cl_int follow(Chain *chain, cl_int error, cl_event done)
{
    if (error != CL_SUCCESS)
        return error;
    if (chain->last != NULL)
        clReleaseEvent(chain->last);
    chain->last = done;
    chain->waits = 1;
    chain->wait = &chain->last;
    return CL_SUCCESS;
}

static cl_int clear(Chain *chain, cl_mem workspace, size_t bytes)
{
    const cl_uint zero = 0;
    cl_event done = NULL;
    const cl_int error = clEnqueueFillBuffer(
        chain->queue, workspace, &zero, sizeof zero, 0, bytes, chain->waits, chain->wait, &done);
    return follow(chain, error, done);
}

// An argument of a kernel.
typedef struct {
    size_t size;
    const void *at;
} Value;

static cl_int launch(
    Chain *chain, cl_kernel kernel, const Step *step, const Value *values, cl_long blocks, cl_long threads)
{
    const size_t size = (size_t)(blocks * threads), block = (size_t)threads;
    cl_int error = CL_SUCCESS;
    for (cl_uint k = 0; k < step->count && error == CL_SUCCESS; k++)
        error = clSetKernelArg(kernel, k, values[step->args[k]].size, values[step->args[k]].at);
    if (error != CL_SUCCESS)
        return error;
    cl_event done = NULL;
    error = clEnqueueNDRangeKernel(chain->queue, kernel, 1, NULL, &size, &block, chain->waits, chain->wait, &done);
    return follow(chain, error, done);
}

// All launches of a plan.
static cl_int launch_all(const Handle *handle, const Plan *plan, Chain *chain, const Value *values)
{
    const Variant *v = &VARIANTS[plan->which];
    const struct {
        cl_long blocks, threads;
    } grids[STEPS] = {
        [BEFORE] = {1, 1},
        [MAIN] = {plan->blocks, v->block},
        [AFTER] = {1, v->second_block},
    };
    cl_int error = CL_SUCCESS;
    for (int k = 0; k < STEPS && error == CL_SUCCESS; k++)
        if (k == MAIN || (v->steps[k].entry != NULL && plan->parts > 1))
            error = launch(
                chain, handle->kernels[plan->which][k], &v->steps[k], values, grids[k].blocks, grids[k].threads);
    return error;
}

// Whether a buffer has `count` elements of `each` bytes from element `first` on.
static cl_int check_buffer(cl_mem buffer, size_t first, cl_long count, size_t each)
{
    size_t bytes = 0;
    if (count == 0)
        return CL_SUCCESS;
    const cl_int error = clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    if (error != CL_SUCCESS)
        return error;
    const size_t room = bytes / each;
    return first <= room && (cl_ulong)count <= room - first ? CL_SUCCESS : CL_INVALID_BUFFER_SIZE;
}

// A part of the workspace. A kernel that is on its way keeps it.
static cl_mem part_of(cl_mem workspace, size_t at, size_t bytes, cl_int *error)
{
    const cl_buffer_region region = {at, bytes};
    if (*error != CL_SUCCESS || bytes == 0)
        return NULL;
    return clCreateSubBuffer(workspace, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, error);
}

cl_int redtune_max_float32_run(
    redtune_max_float32_t *handle, cl_command_queue queue, cl_mem in, size_t in_first, cl_long n, cl_mem out,
    cl_mem workspace, cl_bool is_fresh, cl_uint waits, const cl_event *wait, cl_event *event)
{
    Plan plan;
    cl_int error = make_plan(handle, n, &plan);
    if (error != CL_SUCCESS)
        return error;
    if (plan.results == 0)
        return event == NULL ? CL_SUCCESS : clEnqueueMarkerWithWaitList(queue, waits, wait, event);
    if (plan.blocks > CL_INT_MAX)
        return CL_INVALID_GLOBAL_WORK_SIZE;
    const cl_long elements = n;
    error = check_buffer(in, in_first, elements, 4);
    if (error == CL_SUCCESS)
        error = check_buffer(out, 0, plan.results, 4);
    if (error == CL_SUCCESS)
        error = check_buffer(workspace, 0, (cl_long)plan.workspace_bytes, 1);
    cl_mem counter = part_of(workspace, 0, plan.counter_bytes, &error);
    cl_mem partials = part_of(workspace, plan.partials_at, plan.partials_bytes, &error);
    const Value values[ARGS] = {
        [ARG_DATA] = {sizeof(cl_mem), &in},
        [ARG_DATA_FIRST] = {sizeof(cl_long), &(cl_long){(cl_long)in_first}},
        [ARG_N] = {sizeof(cl_long), &n},
        [ARG_PARTIALS] = {sizeof(cl_mem), &partials},
        [ARG_COUNTER] = {sizeof(cl_mem), &counter},
        [ARG_OUT] = {sizeof(cl_mem), &out},
    };
    Chain chain = {queue, waits, wait, NULL};
    if (error == CL_SUCCESS && is_fresh && plan.counter_bytes > 0)
        error = clear(&chain, workspace, plan.counter_bytes);
    if (error == CL_SUCCESS)
        error = launch_all(handle, &plan, &chain, values);
    if (counter != NULL)
        clReleaseMemObject(counter);
    if (partials != NULL)
        clReleaseMemObject(partials);
    if (error == CL_SUCCESS && event != NULL)
        *event = chain.last;
    else if (chain.last != NULL)
        clReleaseEvent(chain.last);
    return error;
}
