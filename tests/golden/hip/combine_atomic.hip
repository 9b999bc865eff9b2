// max of int32: the largest value; NaN wins.
// An array of any length and alignment in; int32 out, accumulated in int32.
// Made by: redtune show --source --op max --dtype int32 --backend hip --arch gfx942 --fix combine=atomic

constexpr int BLOCK = 256;  // threads per block
constexpr int VECTOR = 1;  // elements per load, at most 16 bytes
constexpr int ITEMS = 4;  // independent loads in flight per thread before the fold
constexpr int ACCUMULATORS = 4;  // independent fold chains per thread and tile
constexpr int WAVE = 32;  // lanes the last tree spans before the threads of a block meet through shared memory
constexpr int LANES = 32;  // of them issue together and meet by shuffles
constexpr int TILE = 1024;  // elements a block folds at once
// walk stride: which tiles a block takes: one of its own, every grid-th, or one contiguous range
// exchange shuffle: how the lanes of a block meet
// combine atomic: how the blocks meet
// hint none: cache hint of the loads

typedef long long index_t;
typedef unsigned long long address_t;
typedef int real_t;  // what the kernel accumulates in
typedef int element_t;  // an element in memory
typedef real_t value_t;  // an element in a register
typedef int result_part_t;
typedef result_part_t result_t;

typedef unsigned int raw_t;  // as wide as one load
static __device__ __forceinline__ raw_t load_raw(const element_t *p) {
    return *(const raw_t *)p;
}

// One load: 1 element.
typedef union {
    raw_t raw;
    element_t item[VECTOR];
} Pack;

static __device__ __forceinline__ value_t widen(element_t x) {
    return (value_t)x;
}

// What is known of some elements.
typedef struct {
    int value;
} State;

// The state of no elements.
static __device__ __forceinline__ State identity(void) {
    State s;
    s.value = (-2147483647 - 1);
    return s;
}

// The state of one element.
static __device__ __forceinline__ State lift(value_t x) {
    State s;
    s.value = x;
    return s;
}

// The state of two sets of elements together.
static __device__ __forceinline__ State merge(State a, State b) {
    State s;
    s.value = a.value > b.value ? a.value : b.value;
    return s;
}

// The result of a state.
static __device__ __forceinline__ result_t finish(State a) {
    return (result_part_t)a.value;
}

// The state of the lane `offset` further on.
static __device__ __forceinline__ State shuffle_down(State s, int offset) {
    s.value = __shfl_down(s.value, offset, LANES);
    return s;
}

// Merges a state into a result, whatever other blocks do meanwhile.
static __device__ __forceinline__ void merge_into(result_t *out, State s) {
    atomicMax((int *)out, s.value);
}

// The threads of a block of 256 meet: the state returned to the first one covers them all.
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
    // The first thread folds what the 8 tails left, in pairs: sooner than lanes can hand it on.
    if (thread == 0) {
        State part[8];
        #pragma unroll
        for (int i = 0; i < 8; i++)
            part[i] = slots[i];
        #pragma unroll
        for (int i = 0; i < 4; i++)
            part[i] = merge(part[i], part[i + 4]);
        #pragma unroll
        for (int i = 0; i < 2; i++)
            part[i] = merge(part[i], part[i + 2]);
        #pragma unroll
        for (int i = 0; i < 1; i++)
            part[i] = merge(part[i], part[i + 1]);
        state = part[0];
    }
    return state;
}

extern "C" __global__ void __launch_bounds__(BLOCK) redtune_max_int32(
    const element_t *__restrict__ data, index_t data_first, index_t n, result_t *out)
{
    __shared__ State slots[8];
    const int thread = (int)threadIdx.x;
    const index_t block = (index_t)blockIdx.x;
    const index_t blocks = (index_t)gridDim.x;

    // 1. The share of this block.
    const element_t *in = data + data_first;
    const index_t head = 0;
    const index_t tiles = (n - head) / TILE;

    // 2. Every thread folds the elements of a tile into independent chains, and the tile into its state.
    State state = identity();
    for (index_t tile = block; tile < tiles; tile += blocks) {
        const index_t at = head + tile * TILE + (index_t)thread * VECTOR;
        Pack pack[ITEMS];
        #pragma unroll
        for (int k = 0; k < ITEMS; k++)
            pack[k].raw = load_raw(in + at + k * (BLOCK * VECTOR));
        State chain[ACCUMULATORS];
        #pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            #pragma unroll
            for (int j = 0; j < VECTOR; j++) {
                const int e = k * VECTOR + j;
                const State one = lift(widen(pack[k].item[j]));
                if (e < ACCUMULATORS)
                    chain[e] = one;
                else
                    chain[e % ACCUMULATORS] = merge(chain[e % ACCUMULATORS], one);
            }
        }
        #pragma unroll
        for (int c = ACCUMULATORS / 2; c > 0; c /= 2) {
            #pragma unroll
            for (int e = 0; e < c; e++)
                chain[e] = merge(chain[e], chain[e + c]);
        }
        state = merge(state, chain[0]);
    }
    for (index_t i = head + tiles * TILE + (index_t)block * BLOCK + thread; i < n; i += blocks * BLOCK)
        state = merge(state, lift(widen(in[i])));

    // 3. The threads of the block meet: thread 0 holds the block's state.
    state = meet_block(state, slots);

    // 4. The blocks meet.
    if (thread == 0) {
        if (blocks == 1)
            out[0] = finish(state);
        else
            merge_into(out + 0, state);
    }
}

// The launch before: every result starts as the identity.
extern "C" __global__ void __launch_bounds__(1) redtune_max_int32_reset(result_t *out)
{
    out[0] = finish(identity());
}
