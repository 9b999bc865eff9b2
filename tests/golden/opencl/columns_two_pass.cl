// sum of float32: the sum.
// An array of outer x n x inner elements with any strides in; float32 out, accumulated in float32.
// Made by: redtune show --source --op sum --dtype float32 --shape 2x16 --axis 0 --backend opencl --arch cpu --fix block=128 --fix team=8 --fix split=4 --fix exchange=lds --fix combine=two_pass

#define BLOCK 128  // threads per block
#define VECTOR 1  // elements per load, at most 16 bytes
#define ITEMS 4  // independent loads in flight per thread before the fold
#define ACCUMULATORS 4  // independent fold chains per thread and tile
#define TEAM 8  // threads that share a result
#define SECOND_BLOCK 256  // threads of the second pass
#define TEAMS 16  // teams of a block, each with a result of its own
#define SECOND_TEAM 4  // threads of the second pass that share a result
#define SECOND_TEAMS 64  // teams of a block of the second pass
#define TILE 32  // elements a team folds at once
// walk stride: which tiles a block takes: one of its own, every grid-th, or one contiguous range
// exchange lds: how the lanes of a block meet
// tree sequential: addressing of the tree in shared memory
// combine two_pass: how the blocks meet
// second_launch after: when the second pass is started: after the first has ended, or before that, to wait for it
// hint none: cache hint of the loads

typedef long index_t;
typedef uintptr_t address_t;
typedef float real_t;  // what the kernel accumulates in
typedef float element_t;  // an element in memory
typedef real_t value_t;  // an element in a register
typedef float result_part_t;
typedef result_part_t result_t;

static inline value_t widen(element_t x) {
    return (value_t)x;
}

// What is known of some elements.
typedef struct {
    float total;
} State;

// The state of no elements.
static inline State identity(void) {
    State s;
    s.total = 0;
    return s;
}

// The state of one element.
static inline State lift(value_t x) {
    State s;
    s.total = x;
    return s;
}

// a + b, and in `lost` what rounding takes from it, what was lost before included.
static inline real_t add(real_t a, real_t b, real_t lost_before, real_t *lost) {
    const real_t sum = a + b;
    const real_t b_taken = sum - a;
    real_t rest = ((a - (sum - b_taken)) + (b - b_taken)) + lost_before;
    rest = rest == rest ? rest : 0;  // an infinite sum has lost nothing
    const real_t total = sum + rest;
    *lost = rest - (total - sum);
    return total;
}

// The state of two sets of elements together.
static inline State merge(State a, State b) {
    State s;
    s.total = a.total + b.total;
    return s;
}

// What a thread has folded so far, and what its sums have lost to rounding.
typedef struct {
    float total;
    float total_lost;
} Running;

// Nothing folded so far.
static inline Running fresh(void) {
    Running s;
    s.total = 0;
    s.total_lost = 0;
    return s;
}

// The first state: what is added to nothing loses nothing.
static inline Running begun(State b) {
    const State s = merge(identity(), b);
    Running all = fresh();
    all.total = s.total;
    return all;
}

// One state more.
static inline Running gather(Running a, State b) {
    Running s;
    s.total = add(a.total, b.total, a.total_lost, &s.total_lost);
    return s;
}

// The state to hand on: what is left of the losses by now is less than half a unit in the last place.
static inline State settled(Running a) {
    State s;
    s.total = a.total;
    return s;
}

// The result of a state.
static inline result_t finish(State a) {
    return (result_part_t)a.total;
}

// The threads of each team of 8 meet: the state returned to the first one covers them all.
static inline State meet_block(State state, __local State *slots) {
    const int thread = (int)get_local_id(0);
    const int member = thread / TEAMS;
    slots[thread] = state;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int s = 8 / 2; s > 0; s /= 2) {
        if (member < s)
            slots[thread] = merge(slots[thread], slots[thread + s * TEAMS]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    return slots[thread];
}

// The threads of each team of 4 meet: the state returned to the first one covers them all.
static inline State meet_second(State state, __local State *slots) {
    const int thread = (int)get_local_id(0);
    const int member = thread % 4;
    slots[thread] = state;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int s = 4 / 2; s > 0; s /= 2) {
        if (member < s)
            slots[thread] = merge(slots[thread], slots[thread + s]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    return slots[thread];
}

__attribute__((reqd_work_group_size(BLOCK, 1, 1)))
__kernel void redtune_sum_float32_columns(
    __global const element_t *restrict data, index_t data_first, index_t data_outer, index_t data_n,
    index_t data_inner, index_t n, index_t outer, index_t inner, index_t parts, __global State *partials,
    __global result_t *out, index_t out_outer, index_t out_inner)
{
    __local State slots[128];
    const int thread = (int)get_local_id(0);
    const index_t block = (index_t)get_group_id(0);
    const index_t blocks = (index_t)get_num_groups(0);

    // Groups of TEAMS results, one after the other. Threads without a result of their own fold nothing, and stay: every
    // thread of a block comes to every barrier.
    const int which = thread % TEAMS;  // neighbouring threads read neighbouring columns
    const int member = thread / TEAMS;
    const index_t results = outer * inner;
    const index_t part = block % parts;
    const index_t groups = (results + TEAMS - 1) / TEAMS;
    for (index_t group = block / parts; group < groups; group += blocks / parts) {
        const index_t result = group * TEAMS + which;
        const bool is_there = result < results;

        // 1. The column of this thread.
        const index_t o = is_there ? result / inner : 0;
        const index_t c = is_there ? result % inner : 0;
        const index_t n_here = is_there ? n : 0;
        __global const element_t *in = data + data_first + o * data_outer + c * data_inner;
        const index_t tiles = n_here / TILE;

        // 2. Every thread folds the elements of a tile into independent chains, and the tile into its state.
        Running running = fresh();
        for (index_t tile = part; tile < tiles; tile += parts) {
            const index_t at = tile * TILE + member;
            element_t item[ITEMS];
            #pragma unroll
            for (int k = 0; k < ITEMS; k++)
                item[k] = in[(at + k * TEAM) * data_n];
            State chain[ACCUMULATORS];
            #pragma unroll
            for (int k = 0; k < ITEMS; k++) {
                #pragma unroll
                for (int j = 0; j < VECTOR; j++) {
                    const int e = k * VECTOR + j;
                    const State one = lift(widen(item[k]));
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
            running = gather(running, chain[0]);
        }
        for (index_t i = tiles * TILE + (index_t)part * TEAM + member; i < n_here; i += parts * TEAM)
            running = gather(running, lift(widen(in[i * data_n])));
        State state = settled(running);

        // 3. The threads of each team meet: its first thread holds their state.
        state = meet_block(state, slots);

        // 4. The blocks meet.
        if (member == 0 && is_there) {
            if (parts == 1)
                out[result / inner * out_outer + result % inner * out_inner] = finish(state);
            else
                partials[result * parts + part] = state;
        }

        barrier(CLK_LOCAL_MEM_FENCE);  // shared memory is free for the next group
    }
}

// The second pass: blocks fold what the redtune_sum_float32_columns launch left, in index order.
__attribute__((reqd_work_group_size(SECOND_BLOCK, 1, 1)))
__kernel void redtune_sum_float32_columns_second(
    __global const State *partials, index_t parts, index_t outer, index_t inner, __global result_t *out,
    index_t out_outer, index_t out_inner)
{
    __local State slots[256];
    const int thread = (int)get_local_id(0);
    const int which = thread / SECOND_TEAM;
    const int member = thread % SECOND_TEAM;
    const index_t results = outer * inner;
    const index_t groups = (results + SECOND_TEAMS - 1) / SECOND_TEAMS;
    for (index_t group = (index_t)get_group_id(0); group < groups; group += (index_t)get_num_groups(0)) {
        const index_t result = group * SECOND_TEAMS + which;
        const bool is_there = result < results;
        index_t i = is_there ? member : parts;
        Running all = i < parts ? begun(partials[result * parts + i]) : fresh();
        for (i += SECOND_TEAM; i < parts; i += SECOND_TEAM)
            all = gather(all, partials[result * parts + i]);
        State state = settled(all);
        state = meet_second(state, slots);
        if (member == 0 && is_there)
            out[result / inner * out_outer + result % inner * out_inner] = finish(state);

        barrier(CLK_LOCAL_MEM_FENCE);  // shared memory is free for the next group
    }
}
