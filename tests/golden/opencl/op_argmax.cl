// argmax of float32: the index of the largest value; the first NaN wins, of equals the lowest index.
// An array of any length and alignment in; int64 out, accumulated in float32.
// Made by: redtune show --source --op argmax --dtype float32 --backend opencl --arch cpu

#define BLOCK 256  // threads per block
#define VECTOR 1  // elements per load, at most 16 bytes
#define ITEMS 4  // independent loads in flight per thread before the fold
#define ACCUMULATORS 4  // independent fold chains per thread and tile
#define WAVE 32  // lanes the last tree spans before the threads of a block meet through shared memory
#define LANES 32  // of them issue together and meet by shuffles
#define TILE 1024  // elements a block folds at once
// walk stride: which tiles a block takes: one of its own, every grid-th, or one contiguous range
// exchange shuffle: how the lanes of a block meet
// combine last_block: how the blocks meet
// hint none: cache hint of the loads

typedef long index_t;
typedef uintptr_t address_t;
typedef float real_t;  // what the kernel accumulates in
typedef float element_t;  // an element in memory
typedef real_t value_t;  // an element in a register
typedef long result_part_t;
typedef result_part_t result_t;

typedef uint raw_t;  // as wide as one load
static inline raw_t load_raw(__global const element_t *p) {
    return *(__global const raw_t *)p;
}

// One load: 1 element.
typedef union {
    raw_t raw;
    element_t item[VECTOR];
} Pack;

static inline value_t widen(element_t x) {
    return (value_t)x;
}

// What is known of some elements.
typedef struct {
    float value;
    long index;
} State;

// The state of no elements.
static inline State identity(void) {
    State s;
    s.value = -INFINITY;
    s.index = 9223372036854775807L;
    return s;
}

// The state of one element at index i.
static inline State lift(value_t x, index_t i) {
    State s;
    s.value = x;
    s.index = (long)(i);
    return s;
}

// The state of two sets of elements together.
static inline State merge(State a, State b) {
    State s;
    const bool wins = (((a.value > b.value) | (a.value != a.value)) == ((b.value > a.value) | (b.value != b.value))) ? (a.index < b.index) : ((a.value > b.value) | (a.value != a.value));
    s.value = wins ? a.value : b.value;
    s.index = wins ? a.index : b.index;
    return s;
}

// The first sweep over a tile: what elements have in common.
static inline value_t in_common(value_t a, value_t b) {
    return ((a > b) | (a != a)) ? a : b;
}

// Whether a tile with `t` in common adds anything to a state.
static inline bool counts(State a, value_t t) {
    return (((t > a.value) | (t != t)) > ((a.value > t) | (a.value != a.value))) | (a.index == 9223372036854775807L);
}

// The result of a state.
static inline result_t finish(State a) {
    return (result_part_t)a.index;
}

// The state of the lane `offset` further on.
static inline State shuffle_down(State s, int offset) {
    s.value = sub_group_shuffle_down(s.value, (uint)offset);
    s.index = sub_group_shuffle_down(s.index, (uint)offset);
    return s;
}

// Counts one more block and says how many came before, with release and acquire towards all blocks.
static inline unsigned int count_up(__global unsigned int *counter) {
    return atomic_fetch_add_explicit((volatile __global atomic_uint *)counter, 1u, memory_order_acq_rel, memory_scope_device);
}

// The threads of a block of 256 meet: the state returned to the first one covers them all.
static inline State meet_block(State state, __local State *slots) {
    const int thread = (int)get_local_id(0);
    state = merge(state, shuffle_down(state, 16));
    state = merge(state, shuffle_down(state, 8));
    state = merge(state, shuffle_down(state, 4));
    state = merge(state, shuffle_down(state, 2));
    state = merge(state, shuffle_down(state, 1));
    const int lane = (int)get_sub_group_local_id();
    if (lane == 0)
        slots[get_sub_group_id()] = state;
    barrier(CLK_LOCAL_MEM_FENCE);
    // The first lanes fold what the 8 tails left.
    if (get_sub_group_id() == 0) {
        state = identity();
        if (lane < 8)
            state = slots[lane];
        state = merge(state, shuffle_down(state, 4));
        state = merge(state, shuffle_down(state, 2));
        state = merge(state, shuffle_down(state, 1));
    }
    return state;
}

__attribute__((intel_reqd_sub_group_size(WAVE))) __attribute__((reqd_work_group_size(BLOCK, 1, 1)))
__kernel void redtune_argmax_float32(
    __global const element_t *restrict data, index_t data_first, index_t n, __global State *partials,
    __global unsigned int *counter, __global result_t *out)
{
    __local State slots[8];
    const int thread = (int)get_local_id(0);
    const index_t block = (index_t)get_group_id(0);
    const index_t blocks = (index_t)get_num_groups(0);
    __local int is_last;

    // 1. The share of this block.
    __global const element_t *in = data + data_first;
    const index_t head = 0;
    const index_t tiles = (n - head) / TILE;

    // 2. Every thread goes over the elements of a tile twice, and merges the tile into its state.
    State state = identity();
    for (index_t tile = block; tile < tiles; tile += blocks) {
        const index_t at = head + tile * TILE + (index_t)thread * VECTOR;
        Pack pack[ITEMS];
        #pragma unroll
        for (int k = 0; k < ITEMS; k++)
            pack[k].raw = load_raw(in + at + k * (BLOCK * VECTOR));
        value_t common[ACCUMULATORS];  // what they have in common, in independent chains
        #pragma unroll
        for (int e = 0; e < ITEMS * VECTOR; e++) {
            const int k = e / VECTOR, j = e % VECTOR;
            const value_t x = widen(pack[k].item[j]);
            const value_t one = x;
            common[e % ACCUMULATORS] = e < ACCUMULATORS ? one : in_common(common[e % ACCUMULATORS], one);
        }
        #pragma unroll
        for (int c = ACCUMULATORS / 2; c > 0; c /= 2) {
            #pragma unroll
            for (int e = 0; e < c; e++)
                common[e] = in_common(common[e], common[e + c]);
        }
        const value_t a = common[0];
        const value_t t = a;
        if (counts(state, t)) {
            int where = 0;  // the first of the elements in question
            #pragma unroll
            for (int e = ITEMS * VECTOR - 1; e >= 0; e--) {
                const int k = e / VECTOR, j = e % VECTOR;
                const value_t x = widen(pack[k].item[j]);
                if ((x == t) | (x != x))
                    where = e;
            }
            const int k = where / VECTOR, j = where % VECTOR;
            const index_t i = at + (k * (BLOCK * VECTOR) + j);
            State whole;
            whole.value = t;
            whole.index = i;
            state = whole;
        }
    }
    for (index_t i = head + tiles * TILE + (index_t)block * BLOCK + thread; i < n; i += blocks * BLOCK)
        state = merge(state, lift(widen(in[i]), i));

    // 3. The threads of the block meet: thread 0 holds the block's state.
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
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        if (is_last) {
            state = identity();
            for (index_t i = thread; i < blocks; i += BLOCK)
                state = merge(state, partials[i]);
            state = meet_block(state, slots);
            if (thread == 0)
                out[0] = finish(state);
            if (thread == 0)
                counter[0] = 0;  // ready for the next launch
        }
    }
}
