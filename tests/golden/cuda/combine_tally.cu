// sum of int32: the sum.
// An array of any length and alignment in; int64 out, accumulated in int64.
// Made by: redtune show --source --op sum --dtype int32 --backend cuda --arch sm_90 --fix combine=tally

constexpr int BLOCK = 256;  // threads per block
constexpr int VECTOR = 1;  // elements per load, at most 16 bytes
constexpr int ITEMS = 4;  // independent loads in flight per thread before the fold
constexpr int ACCUMULATORS = 4;  // independent fold chains per thread and tile
constexpr int WAVE = 32;  // lanes the last tree spans before the threads of a block meet through shared memory
constexpr int COUNT_AT = 48;  // the bit from which on a tally counts blocks
constexpr int WORD_BITS = 32;  // bits of a state that a tally adds up
constexpr int LANES = 32;  // of them issue together and meet by shuffles
constexpr int TILE = 1024;  // elements a block folds at once
// walk stride: which tiles a block takes: one of its own, every grid-th, or one contiguous range
// exchange shuffle: how the lanes of a block meet
// combine tally: how the blocks meet
// hint none: cache hint of the loads

typedef long long index_t;
typedef unsigned long long address_t;
typedef long long real_t;  // what the kernel accumulates in
typedef int element_t;  // an element in memory
typedef real_t value_t;  // an element in a register
typedef long long result_part_t;
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
    unsigned long long total;
} State;

// The state of no elements.
static __device__ __forceinline__ State identity(void) {
    State s;
    s.total = 0;
    return s;
}

// The state of one element.
static __device__ __forceinline__ State lift(value_t x) {
    State s;
    s.total = (unsigned long long)((unsigned long long)x);
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
    return (result_part_t)a.total;
}

// The state of the lane `offset` further on.
static __device__ __forceinline__ State shuffle_down(State s, int offset) {
    s.total = __shfl_down_sync(0xffffffffu, s.total, offset);
    return s;
}

typedef unsigned long long tally_t;  // a sum of words, and from bit COUNT_AT on how many blocks have added to it

// Adds a word and a block to a tally, and says what it holds then.
static __device__ __forceinline__ tally_t add_to(tally_t *tally, unsigned int word) {
    const tally_t more = ((tally_t)1 << COUNT_AT) + word;
    return atomicAdd(tally, more) + more;
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

extern "C" __global__ void __launch_bounds__(BLOCK) redtune_sum_int32(
    const element_t *__restrict__ data, index_t data_first, index_t n, tally_t *counter, result_t *out)
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
        if (blocks == 1) {
            out[0] = finish(state);
        } else {
            // In no order with each other: whoever counts last in the second one may be before others in the first.
            tally_t low = add_to(counter, (unsigned int)state.total);
            const tally_t high = add_to(counter + 1, (unsigned int)((tally_t)state.total >> WORD_BITS));
            if (high >> COUNT_AT == (tally_t)blocks) {
                while (low >> COUNT_AT != (tally_t)blocks)
                    low = atomicAdd(counter, (tally_t)0);
                state.total = (unsigned long long)((low & (((tally_t)1 << COUNT_AT) - 1)) + (high << WORD_BITS));
                atomicAdd(counter, (tally_t)0 - low);  // ready for the next launch
                atomicAdd(counter + 1, (tally_t)0 - high);
                out[0] = finish(state);
            }
        }
    }
}
