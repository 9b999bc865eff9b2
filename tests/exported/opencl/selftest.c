// max of float32: the largest value; NaN wins.
// The self-test of redtune_max_float32.c.
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

// Use: selftest [PLATFORM [DEVICE]], both counted from 0; the first device that takes the kernels otherwise. Prints one
// line for each check and the speed of each kernel; exits with 1 if a check failed, with 2 if it cannot run.

#include "redtune_max_float32.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// An element of the input is word HASH(index) of a table; so the inputs of all checks are these few numbers.
typedef uint32_t word_t;
typedef uint32_t out_word_t;
enum { TABLE = 61, WORDS = 1, OUT_WORDS = 1, SHIFT = 3, INPUTS = 1 };
static const word_t TABLE_EXACT[TABLE * WORDS] = {
    0xbfcf0e3du, 0xbff18d4fu, 0xbf6d33ccu, 0xbfa6dbf2u, 0xbf8cfb96u, 0xbf1332c2u, 0xbf0f480eu,
    0xbf08318du, 0xbf2f7becu, 0xbfda3606u, 0xbfa38395u, 0xbfeddc27u, 0xbfa289b8u, 0xbfaf6399u,
    0xbfccc50du, 0xbfbaaf48u, 0xbfe330f8u, 0xbfeec366u, 0xbffcb6c4u, 0xbf6efbefu, 0xbf53ffb6u,
    0xbfbc48aeu, 0xbfe1fbfcu, 0xbf00f6a7u, 0xbfc8846cu, 0xc00ea647u, 0xbf738dcau, 0xbf0c72e5u,
    0xbfd1b1deu, 0xbf569a64u, 0xc001e742u, 0xbf343dbcu, 0xbf0dbd5cu, 0xbfb413bau, 0xbf056543u,
    0xbfdf3f94u, 0xbf154db4u, 0xbf3f42ffu, 0xbfe84476u, 0xbfb5d2c8u, 0xbf3a90d7u, 0xbf07c877u,
    0xbf01e21bu, 0xbf2a0492u, 0xbf03dd72u, 0xbfdd1ca8u, 0xbfc53927u, 0xbf970818u, 0xbf407829u,
    0xc00a927eu, 0xbfc471a2u, 0xbf61beeau, 0xbf59bb96u, 0xbfdd4484u, 0xbf5bd1eau, 0xc01a7366u,
    0xbfc37a36u, 0xbfed7618u, 0xc00af956u, 0xbfc74bd3u, 0xbfe93f30u,
};
static const word_t TABLE_RANDOM[TABLE * WORDS] = {
    0x3ee86e8cu, 0x3e9d8956u, 0x3ddf9c5bu, 0xbfcba680u, 0x3f11543eu, 0x3f109ddbu, 0xbf92e4a6u,
    0x3de4d777u, 0x3ef0bb4au, 0x3f801e3au, 0x3cacea60u, 0x3e78d80cu, 0xbfc8027au, 0xbe56f0bcu,
    0xbf972961u, 0x3ed9199fu, 0x3c13e10bu, 0xbe86238bu, 0xbf002aacu, 0xbf0ef5f1u, 0x3c21e71eu,
    0xbd5cfdbdu, 0x3ec886ecu, 0x401becc1u, 0xc0ab3537u, 0xbf7eee0fu, 0xbe32c76eu, 0xbf28c176u,
    0x3eaebc96u, 0x3f05a03cu, 0x402f2be0u, 0xbf81760eu, 0xbe953dfcu, 0x40bbe073u, 0x3d8b7a00u,
    0x3f13c461u, 0xbf08001bu, 0xbecadfacu, 0x3e6f3362u, 0x3d68ce6du, 0xc03a14f8u, 0xbf1a433eu,
    0xbe100c22u, 0xc04c910bu, 0xbe139443u, 0x3d22eaa5u, 0x3c003ed2u, 0xc03b18b8u, 0x3f07fd92u,
    0x3ee52fc0u, 0x3ebdc440u, 0xbf2cf9efu, 0x3fdb94d1u, 0xbf04cc77u, 0x3f642e59u, 0xbf06479fu,
    0x3fbb338bu, 0xbbe9cdfau, 0xc01b8ab5u, 0xbfb86ecdu, 0x3c40f662u,
};

// One check: outer x n x inner elements from element `first` on, the one at `plant` replaced by `value`; the results
// begin at `expected` of the list below.
typedef struct {
    const char *about;
    const word_t *table;
    int64_t first, outer, n, inner, plant;
    word_t value[WORDS];
    int expected;
} Case;

// The right results by their bits, and how far a float may be from them under any order of the additions.
static const out_word_t EXPECTED[] = {
    0xbfcf0e3du, 0xbf6efbefu, 0xbf6efbefu, 0xbf07c877u, 0xbf07c877u, 0xbf07c877u, 0xbf01e21bu,
    0xbf01e21bu, 0xbf01e21bu, 0xbf00f6a7u, 0xbf00f6a7u, 0xbf00f6a7u, 0xbf00f6a7u, 0xbf00f6a7u,
    0xbf00f6a7u, 0xbf00f6a7u, 0xbf00f6a7u, 0xbf00f6a7u, 0xbf00f6a7u, 0xbf00f6a7u, 0x42700000u,
    0xbf6efbefu, 0xbf6efbefu, 0x42700000u, 0x42700000u, 0xbf6efbefu, 0xbf00f6a7u, 0xbf00f6a7u,
    0x42700000u, 0x42700000u, 0xbf00f6a7u, 0xbfdd4484u, 0xbfdd4484u, 0x42700000u, 0x42700000u,
    0xbfdd4484u, 0xbf00f6a7u, 0xbf00f6a7u, 0x42700000u, 0x42700000u, 0xbf00f6a7u, 0xbfdf3f94u,
    0xbfdf3f94u, 0x42700000u, 0x42700000u, 0xbfdf3f94u, 0xbf00f6a7u, 0xbf00f6a7u, 0x42700000u,
    0x42700000u, 0xbf00f6a7u, 0x00000000u, 0x00000000u, 0x00000000u, 0x00000000u, 0x42700000u,
    0x42700000u, 0x42700000u, 0x42700000u, 0xbf00f6a7u, 0xbf00f6a7u, 0xbf00f6a7u, 0xc2c80000u,
    0x7fc00000u, 0x7fc00000u, 0x7fc00000u, 0x7fc00000u, 0x7f800000u, 0x7f800000u, 0x7f800000u,
    0x7f800000u, 0xbf00f6a7u, 0xbf00f6a7u, 0xbf00f6a7u, 0xff800000u, 0x40bbe073u,
};
static const double WITHIN[] = {
    0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
    0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
    0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
    0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
};

static const Case CASES[] = {
    {"1 element", TABLE_EXACT, 0, 1, 1, 1, -1, {0x00000000u}, 0},
    {"2 elements", TABLE_EXACT, 0, 1, 2, 1, -1, {0x00000000u}, 1},
    {"3 elements", TABLE_EXACT, 0, 1, 3, 1, -1, {0x00000000u}, 2},
    {"31 elements", TABLE_EXACT, 0, 1, 31, 1, -1, {0x00000000u}, 3},
    {"32 elements", TABLE_EXACT, 0, 1, 32, 1, -1, {0x00000000u}, 4},
    {"33 elements", TABLE_EXACT, 0, 1, 33, 1, -1, {0x00000000u}, 5},
    {"63 elements", TABLE_EXACT, 0, 1, 63, 1, -1, {0x00000000u}, 6},
    {"64 elements", TABLE_EXACT, 0, 1, 64, 1, -1, {0x00000000u}, 7},
    {"65 elements", TABLE_EXACT, 0, 1, 65, 1, -1, {0x00000000u}, 8},
    {"255 elements", TABLE_EXACT, 0, 1, 255, 1, -1, {0x00000000u}, 9},
    {"256 elements", TABLE_EXACT, 0, 1, 256, 1, -1, {0x00000000u}, 10},
    {"257 elements", TABLE_EXACT, 0, 1, 257, 1, -1, {0x00000000u}, 11},
    {"1000 elements", TABLE_EXACT, 0, 1, 1000, 1, -1, {0x00000000u}, 12},
    {"1023 elements", TABLE_EXACT, 0, 1, 1023, 1, -1, {0x00000000u}, 13},
    {"1024 elements", TABLE_EXACT, 0, 1, 1024, 1, -1, {0x00000000u}, 14},
    {"1025 elements", TABLE_EXACT, 0, 1, 1025, 1, -1, {0x00000000u}, 15},
    {"2047 elements", TABLE_EXACT, 0, 1, 2047, 1, -1, {0x00000000u}, 16},
    {"2048 elements", TABLE_EXACT, 0, 1, 2048, 1, -1, {0x00000000u}, 17},
    {"2049 elements", TABLE_EXACT, 0, 1, 2049, 1, -1, {0x00000000u}, 18},
    {"262143 elements", TABLE_EXACT, 0, 1, 262143, 1, -1, {0x00000000u}, 19},
    {"high at the very last, 262143 elements", TABLE_EXACT, 0, 1, 262143, 1, 262142, {0x42700000u}, 20},
    {"from element 1 on, 2 elements", TABLE_EXACT, 1, 1, 2, 1, -1, {0x00000000u}, 21},
    {"from element 1 on, high before, 2 elements", TABLE_EXACT, 1, 1, 2, 1, 0, {0x42700000u}, 22},
    {"from element 1 on, high first, 2 elements", TABLE_EXACT, 1, 1, 2, 1, 1, {0x42700000u}, 23},
    {"from element 1 on, high last, 2 elements", TABLE_EXACT, 1, 1, 2, 1, 2, {0x42700000u}, 24},
    {"from element 1 on, high behind, 2 elements", TABLE_EXACT, 1, 1, 2, 1, 3, {0x42700000u}, 25},
    {"from element 1 on, 3077 elements", TABLE_EXACT, 1, 1, 3077, 1, -1, {0x00000000u}, 26},
    {"from element 1 on, high before, 3077 elements", TABLE_EXACT, 1, 1, 3077, 1, 0, {0x42700000u}, 27},
    {"from element 1 on, high first, 3077 elements", TABLE_EXACT, 1, 1, 3077, 1, 1, {0x42700000u}, 28},
    {"from element 1 on, high last, 3077 elements", TABLE_EXACT, 1, 1, 3077, 1, 3077, {0x42700000u}, 29},
    {"from element 1 on, high behind, 3077 elements", TABLE_EXACT, 1, 1, 3077, 1, 3078, {0x42700000u}, 30},
    {"from element 2 on, 2 elements", TABLE_EXACT, 2, 1, 2, 1, -1, {0x00000000u}, 31},
    {"from element 2 on, high before, 2 elements", TABLE_EXACT, 2, 1, 2, 1, 1, {0x42700000u}, 32},
    {"from element 2 on, high first, 2 elements", TABLE_EXACT, 2, 1, 2, 1, 2, {0x42700000u}, 33},
    {"from element 2 on, high last, 2 elements", TABLE_EXACT, 2, 1, 2, 1, 3, {0x42700000u}, 34},
    {"from element 2 on, high behind, 2 elements", TABLE_EXACT, 2, 1, 2, 1, 4, {0x42700000u}, 35},
    {"from element 2 on, 3077 elements", TABLE_EXACT, 2, 1, 3077, 1, -1, {0x00000000u}, 36},
    {"from element 2 on, high before, 3077 elements", TABLE_EXACT, 2, 1, 3077, 1, 1, {0x42700000u}, 37},
    {"from element 2 on, high first, 3077 elements", TABLE_EXACT, 2, 1, 3077, 1, 2, {0x42700000u}, 38},
    {"from element 2 on, high last, 3077 elements", TABLE_EXACT, 2, 1, 3077, 1, 3078, {0x42700000u}, 39},
    {"from element 2 on, high behind, 3077 elements", TABLE_EXACT, 2, 1, 3077, 1, 3079, {0x42700000u}, 40},
    {"from element 3 on, 2 elements", TABLE_EXACT, 3, 1, 2, 1, -1, {0x00000000u}, 41},
    {"from element 3 on, high before, 2 elements", TABLE_EXACT, 3, 1, 2, 1, 2, {0x42700000u}, 42},
    {"from element 3 on, high first, 2 elements", TABLE_EXACT, 3, 1, 2, 1, 3, {0x42700000u}, 43},
    {"from element 3 on, high last, 2 elements", TABLE_EXACT, 3, 1, 2, 1, 4, {0x42700000u}, 44},
    {"from element 3 on, high behind, 2 elements", TABLE_EXACT, 3, 1, 2, 1, 5, {0x42700000u}, 45},
    {"from element 3 on, 3077 elements", TABLE_EXACT, 3, 1, 3077, 1, -1, {0x00000000u}, 46},
    {"from element 3 on, high before, 3077 elements", TABLE_EXACT, 3, 1, 3077, 1, 2, {0x42700000u}, 47},
    {"from element 3 on, high first, 3077 elements", TABLE_EXACT, 3, 1, 3077, 1, 3, {0x42700000u}, 48},
    {"from element 3 on, high last, 3077 elements", TABLE_EXACT, 3, 1, 3077, 1, 3079, {0x42700000u}, 49},
    {"from element 3 on, high behind, 3077 elements", TABLE_EXACT, 3, 1, 3077, 1, 3080, {0x42700000u}, 50},
    {"zero, the first element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 0, {0x00000000u}, 51},
    {"zero, the middle element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 1538, {0x00000000u}, 52},
    {"zero, the last element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 3076, {0x00000000u}, 53},
    {"zero, 1 element", TABLE_EXACT, 0, 1, 1, 1, 0, {0x00000000u}, 54},
    {"high, the first element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 0, {0x42700000u}, 55},
    {"high, the middle element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 1538, {0x42700000u}, 56},
    {"high, the last element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 3076, {0x42700000u}, 57},
    {"high, 1 element", TABLE_EXACT, 0, 1, 1, 1, 0, {0x42700000u}, 58},
    {"low, the first element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 0, {0xc2c80000u}, 59},
    {"low, the middle element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 1538, {0xc2c80000u}, 60},
    {"low, the last element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 3076, {0xc2c80000u}, 61},
    {"low, 1 element", TABLE_EXACT, 0, 1, 1, 1, 0, {0xc2c80000u}, 62},
    {"nan, the first element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 0, {0x7fc00000u}, 63},
    {"nan, the middle element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 1538, {0x7fc00000u}, 64},
    {"nan, the last element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 3076, {0x7fc00000u}, 65},
    {"nan, 1 element", TABLE_EXACT, 0, 1, 1, 1, 0, {0x7fc00000u}, 66},
    {"infinity, the first element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 0, {0x7f800000u}, 67},
    {"infinity, the middle element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 1538, {0x7f800000u}, 68},
    {"infinity, the last element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 3076, {0x7f800000u}, 69},
    {"infinity, 1 element", TABLE_EXACT, 0, 1, 1, 1, 0, {0x7f800000u}, 70},
    {"minus infinity, the first element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 0, {0xff800000u}, 71},
    {"minus infinity, the middle element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 1538, {0xff800000u}, 72},
    {"minus infinity, the last element, 3077 elements", TABLE_EXACT, 0, 1, 3077, 1, 3076, {0xff800000u}, 73},
    {"minus infinity, 1 element", TABLE_EXACT, 0, 1, 1, 1, 0, {0xff800000u}, 74},
    {"random, 3001 elements", TABLE_RANDOM, 0, 1, 3001, 1, -1, {0x00000000u}, 75},
};

enum { CASE_COUNT = sizeof CASES / sizeof CASES[0] };
enum { ELEMENT = WORDS * sizeof(word_t), RESULT = OUT_WORDS * sizeof(out_word_t) };

// The kernels with the sizes that they were tuned for, and how: with inputs that rotate past a cache of so many bytes,
// or with one that stays in it.
typedef struct {
    const char *name, *sizes, *stored;
    int64_t n;
    bool is_cold;
    size_t cache_bytes;
} Kernel;

static const Kernel KERNELS[] = {
    {"v0", "268435456", " (the search: 4535.6 GB/s)", 268435456, true, 0},
};
enum { KERNEL_COUNT = sizeof KERNELS / sizeof KERNELS[0] };

// The first elements of a check's array.
static void fill(word_t *to, int64_t count, const Case *test)
{
    for (int64_t k = 0; k < count; k++) {
        uint32_t hash = (uint32_t)k * 0x9e3779b1u;
        hash ^= hash >> 15;
        hash *= 0x85ebca6bu;
        hash ^= hash >> 13;
        for (int w = 0; w < WORDS; w++)
            to[k * WORDS + w] = k == test->plant ? test->value[w] : test->table[hash % TABLE * WORDS + (uint32_t)w];
    }
}

// A float by its bits.
static double value_of(out_word_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Whether a result is what it must be.
static bool is_right(const out_word_t *got, const Case *test, int64_t result)
{
    const out_word_t *right = EXPECTED + test->expected * OUT_WORDS + result * OUT_WORDS;
    const double within = WITHIN[test->expected + result];
    double off = 0;
    for (int part = 0; part < OUT_WORDS; part++) {
        const double a = value_of(got[part]), b = value_of(right[part]);
        if (a == b || (a != a && b != b))
            continue;
        off = hypot(off, a - b);
    }
    return off <= within;  // false for what is no number
}

// Where everything runs.
typedef struct {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    redtune_max_float32_t *handle;
} Station;

// Prints what went wrong and ends the program.
static void need(cl_int error, const char *what)
{
    if (error == CL_SUCCESS)
        return;
    fprintf(stderr, "%s: OpenCL error %d\n", what, (int)error);
    exit(2);
}

static void *take(size_t count, size_t each)
{
    void *memory = calloc(count > 0 ? count : 1, each);
    need(memory == NULL ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS, "taking memory");
    return memory;
}

static cl_mem take_buffer(const Station *at, size_t bytes)
{
    cl_int error = CL_SUCCESS;
    cl_mem buffer = clCreateBuffer(at->context, CL_MEM_READ_WRITE, bytes, NULL, &error);
    need(error, "taking a buffer");
    return buffer;
}

// Fills a buffer with garbage.
static void spoil(const Station *at, cl_mem buffer, size_t bytes)
{
    const unsigned char garbage = 0xa5;
    need(clEnqueueFillBuffer(at->queue, buffer, &garbage, 1, 0, bytes, 0, NULL, NULL), "filling a buffer");
}

// Copies elements to a place in a buffer.
static void put(const Station *at, cl_mem buffer, size_t first, const word_t *host, size_t count)
{
    const size_t begin = first * ELEMENT, bytes = count * ELEMENT;
    need(clEnqueueWriteBuffer(at->queue, buffer, CL_TRUE, begin, bytes, host, 0, NULL, NULL), "copying in");
}

// 1. The device.

// Makes a device ready, or says why it does not take the kernels.
static bool open_device(Station *at, cl_device_id device)
{
    char name[256] = "";
    cl_int error = CL_SUCCESS;
    need(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name - 1, name, NULL), "asking for the device");
    at->device = device;
    at->context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    need(error, "making a context");
    error = redtune_max_float32_create(&at->handle, at->context, device);
    if (error == CL_SUCCESS) {
        at->queue = clCreateCommandQueue(at->context, device, CL_QUEUE_PROFILING_ENABLE, &error);
        need(error, "making a queue");
        printf("device: %s\n", name);
        return true;
    }
    fprintf(stderr, "%s does not take the kernels: OpenCL error %d\n", name, (int)error);
    fprintf(stderr, "%s\n", redtune_max_float32_build_log(at->handle));
    redtune_max_float32_release(at->handle);
    need(clReleaseContext(at->context), "giving the context back");
    return false;
}

// The first device that takes the kernels, of the platform and with the number asked for if they are not negative.
static bool find_device(Station *at, int platform, int device)
{
    enum { MOST = 16 };
    cl_platform_id platforms[MOST];
    cl_device_id devices[MOST];
    cl_uint platform_count = 0;
    need(clGetPlatformIDs(MOST, platforms, &platform_count), "looking for a platform");
    for (int p = 0; p < MOST && p < (int)platform_count; p++) {
        cl_uint count = 0;
        if (platform >= 0 && p != platform)
            continue;
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MOST, devices, &count) != CL_SUCCESS)
            continue;
        for (int d = 0; d < MOST && d < (int)count; d++)
            if ((device < 0 || d == device) && open_device(at, devices[d]))
                return true;
    }
    return false;
}

// 2. The checks.

static cl_int run(
    const Station *at, cl_mem in, cl_long first, cl_long n, cl_mem out, cl_mem workspace,
    cl_bool is_fresh, cl_event *event)
{
    return redtune_max_float32_run(
        at->handle, at->queue, in, (size_t)first, n, out, workspace, is_fresh,
        0, NULL, event);
}

// One launch of a check: whether all results are right.
static bool launch_is_right(
    const Station *at, const char *name, const Case *test, cl_mem in, cl_mem out, cl_mem workspace, int launch)
{
    const int64_t results = test->outer * test->inner;
    const size_t bytes = (size_t)results * RESULT;
    out_word_t *got = take((size_t)results, RESULT);
    int64_t wrong = -1;
    spoil(at, out, bytes);
    const cl_int error = run(
        at, in, test->first, test->n, out, workspace, launch == 0, NULL);
    need(error, "launching");
    need(clEnqueueReadBuffer(at->queue, out, CL_TRUE, 0, bytes, got, 0, NULL, NULL), "copying out");
    for (int64_t k = 0; wrong < 0 && k < results; k++)
        if (!is_right(got + k * OUT_WORDS, test, k))
            wrong = k;
    if (wrong >= 0)
        printf("FAILED  %s: %s: result %ld of %ld, launch %d\n",
               name, test->about, (long)wrong, (long)results, launch + 1);
    free(got);
    return wrong < 0;
}

// One check: whether the results are right. The workspace and the results hold garbage before.
static bool check(const Station *at, const char *name, const Case *test, cl_mem in)
{
    const int64_t elements = test->outer * test->n * test->inner;
    const int64_t count = test->first + (elements > 0 ? elements : 1) + SHIFT;
    word_t *host = take((size_t)count, ELEMENT);
    fill(host, count, test);
    put(at, in, 0, host, (size_t)count);
    free(host);
    size_t workspace_bytes = 0;
    need(redtune_max_float32_workspace(at->handle, test->n, &workspace_bytes),
         "asking for the workspace");
    cl_mem workspace = take_buffer(at, workspace_bytes);
    cl_mem out = take_buffer(at, (size_t)(test->outer * test->inner) * RESULT);
    spoil(at, workspace, workspace_bytes);
    bool ok = true;
    for (int launch = 0; ok && launch < 3; launch++)  // what one launch leaves behind must not harm the next
        ok = launch_is_right(at, name, test, in, out, workspace, launch);
    need(clReleaseMemObject(workspace), "giving the workspace back");
    need(clReleaseMemObject(out), "giving the results back");
    if (ok)
        printf("ok      %s: %s\n", name, test->about);
    return ok;
}

// How many elements the largest check looks at.
static int64_t most_elements(void)
{
    int64_t most = 1;
    for (int k = 0; k < CASE_COUNT; k++) {
        const int64_t elements = CASES[k].outer * CASES[k].n * CASES[k].inner;
        const int64_t count = CASES[k].first + (elements > 0 ? elements : 1) + SHIFT;
        most = count > most ? count : most;
    }
    return most;
}

// Every check through the kernel that the size picks, and through each of them.
static int check_results(const Station *at, int *done)
{
    int failed = 0;
    cl_mem in = take_buffer(at, (size_t)most_elements() * ELEMENT);
    for (int which = -1; which < KERNEL_COUNT; which++) {
        need(redtune_max_float32_force(at->handle, which), "taking a kernel");
        for (int k = 0; k < CASE_COUNT; k++, ++*done)
            failed += !check(at, which < 0 ? "redtune_max_float32" : KERNELS[which].name, &CASES[k], in);
    }
    need(redtune_max_float32_force(at->handle, -1), "picking kernels again");
    need(clReleaseMemObject(in), "giving the input back");
    return failed;
}

static int expect(cl_int got, cl_int right, const char *about)
{
    printf("%s  redtune_max_float32: %s\n", got == right ? "ok    " : "FAILED", about);
    return got != right;
}

// What a run says of arguments that it cannot take.
static int check_errors(const Station *at, int *done)
{
    const size_t elements = 8 + SHIFT;
    cl_mem in = take_buffer(at, elements * ELEMENT), out = take_buffer(at, 4 * RESULT);
    size_t workspace_bytes = 0;
    need(redtune_max_float32_workspace(at->handle, 2, &workspace_bytes),
         "asking for the workspace");
    cl_mem workspace = take_buffer(at, workspace_bytes);
    int failed = 0;
    failed += expect(
        run(at, in, 0, -1, out, workspace, CL_TRUE, NULL),
        CL_INVALID_VALUE, "a size below zero is an error");
    ++*done;
    failed += expect(
        run(at, in, elements, 2, out, workspace, CL_TRUE, NULL),
        CL_INVALID_BUFFER_SIZE, "elements beyond the buffer are an error");
    ++*done;
    failed += expect(
        run(at, in, 0, 2, out, NULL, CL_TRUE, NULL),
        CL_INVALID_MEM_OBJECT, "no workspace is an error");
    ++*done;
    failed += expect(
        run(at, in, 0, 0, out, workspace, CL_TRUE, NULL),
        CL_INVALID_VALUE, "no elements are an error");
    ++*done;
    need(clReleaseMemObject(in), "giving the input back");
    need(clReleaseMemObject(out), "giving the results back");
    need(clReleaseMemObject(workspace), "giving the workspace back");
    return failed;
}

// 3. The speed.

// Inputs that lie one after the other in one buffer, to be reduced in turn.
typedef struct {
    const Kernel *kernel;
    cl_mem memory, out, workspace;
    size_t each;  // elements from one input to the next, in whole cache lines
    size_t copies, turn;
} Timing;

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

// How many copies of the input rotate; 0 if there is too little memory for one.
static size_t copies_for(const Station *at, const Kernel *kernel, size_t bytes)
{
    cl_ulong cache = 0, total = 0, largest = 0;
    const char *what = "asking for the memory";
    need(clGetDeviceInfo(at->device, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, sizeof cache, &cache, NULL), what);
    need(clGetDeviceInfo(at->device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof total, &total, NULL), what);
    need(clGetDeviceInfo(at->device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof largest, &largest, NULL), what);
    if (cache < kernel->cache_bytes)  // of a CPU, some runtimes name only the second level
        cache = kernel->cache_bytes;
    const size_t room = (size_t)(total / 2 < largest ? total / 2 : largest) / bytes;
    const size_t wanted = kernel->is_cold ? (size_t)(4 * cache) / bytes + 1 : 1;
    return least(least(wanted, 64), room);
}

// Fills the memory that is timed with the elements of the first check, over and over.
static void fill_memory(const Station *at, cl_mem memory, size_t count)
{
    const size_t some = least(count, (size_t)1 << 20);
    word_t *host = take(some, ELEMENT);
    fill(host, (int64_t)some, &CASES[0]);
    for (size_t done = 0; done < count; done += some)
        put(at, memory, done, host, least(some, count - done));
    free(host);
}

static void next(const Station *at, Timing *timing, bool is_fresh, cl_event *event)
{
    const Kernel *kernel = timing->kernel;
    const cl_long first = (cl_long)(INPUTS * timing->each * (timing->turn++ % timing->copies));
    const cl_int error = run(
        at, timing->memory, first, kernel->n, timing->out,
        timing->workspace, is_fresh, event);
    need(error, "launching");
}

static cl_ulong end_of(cl_event event)
{
    cl_ulong end = 0;
    need(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL), "reading the clock");
    need(clReleaseEvent(event), "giving an event back");
    return end;
}

// Seconds from the end of one reduction to the end of the last of so many behind it, for each of them: the device's
// clock, as C has none that would do.
static double sample(const Station *at, Timing *timing, int times)
{
    cl_event start = NULL, end = NULL;
    next(at, timing, false, &start);
    for (int k = 1; k <= times; k++)
        next(at, timing, false, k == times ? &end : NULL);
    need(clWaitForEvents(1, &end), "waiting");
    const cl_ulong started = end_of(start);
    return 1e-9 * (double)(end_of(end) - started) / times;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The median of several samples.
static double time_of(const Station *at, Timing *timing)
{
    enum { SAMPLES = 11 };
    double samples[SAMPLES];
    next(at, timing, true, NULL);
    const double about = sample(at, timing, 3);
    const int times = about > 0.01 / 3 ? 3 : about > 1e-6 ? (int)(0.01 / about) : 10000;
    for (int k = 0; k < SAMPLES; k++)
        samples[k] = sample(at, timing, times);
    qsort(samples, SAMPLES, sizeof samples[0], by_size);
    return samples[SAMPLES / 2];
}

// Prints how fast a kernel is at the size that it was tuned for.
static void show_speed(const Station *at, int which)
{
    const Kernel *kernel = &KERNELS[which];
    const size_t results = 1;
    const size_t elements = (size_t)kernel->n;
    Timing timing = {.kernel = kernel, .each = (elements + 255) / 256 * 256};
    timing.copies = copies_for(at, kernel, INPUTS * timing.each * ELEMENT);
    if (timing.copies == 0) {
        printf("%s: not timed: too little memory\n", kernel->name);
        return;
    }
    const size_t count = INPUTS * timing.copies * timing.each;
    size_t workspace_bytes = 0;
    need(redtune_max_float32_force(at->handle, which), "taking a kernel");
    need(redtune_max_float32_workspace(at->handle, kernel->n, &workspace_bytes),
         "asking for the workspace");
    timing.memory = take_buffer(at, count * ELEMENT);
    timing.out = take_buffer(at, results * RESULT);
    timing.workspace = take_buffer(at, workspace_bytes);
    fill_memory(at, timing.memory, count);
    const double seconds = time_of(at, &timing);
    const double gbps = 1e-9 * INPUTS * ELEMENT * (double)elements / seconds;
    printf("%s: %.2f us, %.1f GB/s for %s elements%s\n",
           kernel->name, 1e6 * seconds, gbps, kernel->sizes, kernel->stored);
    need(clReleaseMemObject(timing.memory), "giving memory back");
    need(clReleaseMemObject(timing.out), "giving memory back");
    need(clReleaseMemObject(timing.workspace), "giving memory back");
}

// A number of the command line, or -1 if it is not there.
static int number(int argc, char **argv, int which)
{
    char *end = NULL;
    const long found = which < argc ? strtol(argv[which], &end, 10) : -1;
    if (which < argc && (found < 0 || found > 1000 || *argv[which] == 0 || *end != 0)) {
        fprintf(stderr, "use: selftest [PLATFORM [DEVICE]], both counted from 0\n");
        exit(2);
    }
    return (int)found;
}

int main(int argc, char **argv)
{
    Station at = {NULL, NULL, NULL, NULL};
    if (!find_device(&at, number(argc, argv, 1), number(argc, argv, 2))) {
        fprintf(stderr, "no device takes the kernels\n");
        return 2;
    }
    int done = 0;
    const int failed = check_results(&at, &done) + check_errors(&at, &done);
    printf("%d of %d checks passed\n", done - failed, done);
    for (int which = 0; which < KERNEL_COUNT; which++)
        show_speed(&at, which);
    redtune_max_float32_release(at.handle);
    clReleaseCommandQueue(at.queue);
    clReleaseContext(at.context);
    return failed == 0 ? 0 : 1;
}
