// sum of float16: the sum.
// A flat array of any length and alignment in, one float16 out, accumulated in float32.
// Made by: redtune show --source --op sum --dtype float16 --backend cuda --arch sm_90 --fix vector=8 --fix items=2

constexpr int BLOCK = 256;  // threads per block
constexpr int VECTOR = 8;  // elements per load, at most 16 bytes
constexpr int ITEMS = 2;  // independent loads in flight per thread before the fold
constexpr int ACCUMULATORS = 4;  // independent fold chains per thread
constexpr int WAVE = 32;  // lanes the last tree spans before the threads of a block meet through shared memory
constexpr int LANES = 32;  // of them issue together and meet by shuffles
constexpr int TILE = 4096;  // elements a block folds at once
// walk stride: which tiles a block takes: one of its own, every grid-th, or one contiguous range
// exchange shuffle: how the lanes of a block meet
// combine last_block: how the blocks meet
// hint none: cache hint of the loads

typedef long long index_t;
typedef unsigned long long address_t;
typedef uint4 raw_t;  // as wide as one load
typedef unsigned short element_t;  // an element in memory
typedef float value_t;  // an element in a register
typedef unsigned short result_t;

static __device__ __forceinline__ raw_t load_raw(const element_t *p) {
    return *(const raw_t *)p;
}

static __device__ __forceinline__ value_t widen(element_t x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
    return wide;
}

static __device__ __forceinline__ result_t narrow(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

// What is known of the elements seen so far.
typedef struct {
    float total;
} State;

// One load: 8 elements.
typedef union {
    raw_t raw;
    element_t item[VECTOR];
} Pack;

// The state of no elements.
static __device__ __forceinline__ State identity(void) {
    State s;
    s.total = 0;
    return s;
}

// The state of one element.
static __device__ __forceinline__ State lift(value_t x) {
    State s;
    s.total = x;
    return s;
}

// The state of two sets of elements together.
static __device__ __forceinline__ State merge(State a, State b) {
    State s;
    s.total = a.total + b.total;
    return s;
}

// The result of a state.
static __device__ __forceinline__ result_t finish(State a) {
    return narrow(a.total);
}

static __device__ __forceinline__ State shuffle_down(State s, int offset) {
    s.total = __shfl_down_sync(0xffffffffu, s.total, offset);
    return s;
}

// Counts one more block and says how many came before, with release and acquire towards all blocks.
static __device__ __forceinline__ unsigned int count_up(unsigned int *counter) {
    unsigned int before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
}

// The threads of a block of 256 meet: the state returned to thread 0 covers them all.
static __device__ __forceinline__ State meet_block(State state, State *slots) {
    const int thread = (int)threadIdx.x;
    state = merge(state, shuffle_down(state, 16));
    state = merge(state, shuffle_down(state, 8));
    state = merge(state, shuffle_down(state, 4));
    state = merge(state, shuffle_down(state, 2));
    state = merge(state, shuffle_down(state, 1));
    const int lane = thread % LANES;
    if (lane == 0)
        slots[thread / WAVE] = state;
    __syncthreads();
    // The first lanes fold what the 8 tails left.
    if (thread < LANES) {
        state = identity();
        if (lane < 8)
            state = slots[lane];
        state = merge(state, shuffle_down(state, 4));
        state = merge(state, shuffle_down(state, 2));
        state = merge(state, shuffle_down(state, 1));
    }
    return state;
}

extern "C" __global__ void __launch_bounds__(BLOCK) redtune_sum_float16(
    const element_t *__restrict__ data, index_t first, index_t n, State *partials, unsigned int *counter,
    result_t *out)
{
    __shared__ State slots[8];
    __shared__ int is_last;
    const int thread = (int)threadIdx.x;
    const index_t block = (index_t)blockIdx.x;
    const index_t blocks = (index_t)gridDim.x;

    // 1. The share of this block. Loads of VECTOR elements need an aligned address, so the elements before the first one
    //    and those after the last whole tile are folded one by one.
    const element_t *in = data + first;
    index_t head = (index_t)((0 - (address_t)in) % sizeof(raw_t) / sizeof(element_t));
    if (head > n)
        head = n;
    const index_t tiles = (n - head) / TILE;

    // 2. Every thread folds its elements into independent chains.
    State chain[ACCUMULATORS];
    #pragma unroll
    for (int c = 0; c < ACCUMULATORS; c++)
        chain[c] = identity();
    for (index_t tile = block; tile < tiles; tile += blocks) {
        const index_t at = head + tile * TILE + (index_t)thread * VECTOR;
        Pack pack[ITEMS];
        #pragma unroll
        for (int k = 0; k < ITEMS; k++)
            pack[k].raw = load_raw(in + at + k * (BLOCK * VECTOR));
        #pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            #pragma unroll
            for (int j = 0; j < VECTOR; j++) {
                const int c = (k * VECTOR + j) % ACCUMULATORS;
                chain[c] = merge(chain[c], lift(widen(pack[k].item[j])));
            }
        }
    }
    for (index_t i = block * BLOCK + thread; i < head; i += blocks * BLOCK)
        chain[0] = merge(chain[0], lift(widen(in[i])));
    for (index_t i = head + tiles * TILE + block * BLOCK + thread; i < n; i += blocks * BLOCK)
        chain[0] = merge(chain[0], lift(widen(in[i])));

    // 3. The chains of a thread meet, then the threads of the block: thread 0 holds the block's state.
    State state = chain[0];
    #pragma unroll
    for (int c = 1; c < ACCUMULATORS; c++)
        state = merge(state, chain[c]);
    state = meet_block(state, slots);

    // 4. The blocks meet.
    if (blocks == 1) {
        if (thread == 0)
            out[0] = finish(state);
    } else {
        if (thread == 0) {
            partials[block] = state;
            // Release before the count makes this block's state visible, acquire after it shows the others'.
            is_last = count_up(counter) == (unsigned int)(blocks - 1);
        }
        __syncthreads();
        if (is_last) {
            state = identity();
            for (index_t i = thread; i < blocks; i += BLOCK)
                state = merge(state, partials[i]);
            state = meet_block(state, slots);
            if (thread == 0) {
                out[0] = finish(state);
                counter[0] = 0;  // ready for the next launch
            }
        }
    }
}
