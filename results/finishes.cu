// What bulk copies into shared memory and an early second launch give a sum of float32, beside plain loads: the best of
// a few shapes, cold inputs, replayed graphs, the median of ten. Kernels of their own, without heads and tails.
//
//     nvcc -O3 -std=c++17 -arch=sm_90 results/finishes.cu -o finishes && ./finishes
//
// It prints for each size: a last block that folds, a second pass, an early second pass, bulk copies and a last block.
#include <cstdio>
#include <cstdlib>
#include <cstdint>
#include <vector>
#include <algorithm>
#include <string>
#include <cuda_runtime.h>
#define CK(x) do { cudaError_t e_ = (x); if (e_ != cudaSuccess) { printf("%s: %s\n", #x, cudaGetErrorString(e_)); exit(1); } } while (0)
typedef long long idx;
__device__ __forceinline__ float block_sum(float s, float *slots, int block) {
    for (int o = 16; o; o >>= 1) s += __shfl_down_sync(~0u, s, o);
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x < 32) {
        s = threadIdx.x < block / 32 ? slots[threadIdx.x] : 0;
        for (int o = 16; o; o >>= 1) s += __shfl_down_sync(~0u, s, o);
    }
    return s;
}
__device__ __forceinline__ void last(float s, float *partials, unsigned *counter, float *out, float *slots, int block) {
    __shared__ int is_last;
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = s;
        unsigned before;
        asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
        is_last = before == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last) {
        float t = 0;
        for (int i = threadIdx.x; i < gridDim.x; i += block) t += __ldcg(partials + i);
        t = block_sum(t, slots, block);
        if (threadIdx.x == 0) { *out = t; *counter = 0; }
    }
}
template <int BLOCK, int U, bool CS, int END>  // END 0: last block, 1: leave partials, 2: leave partials and let the next begin
__global__ void __launch_bounds__(BLOCK) plain(const float4 *in, idx n4, float *partials, unsigned *counter, float *out) {
    __shared__ float slots[32];
    float s[4] = {0, 0, 0, 0};
    if (END == 2) asm volatile("griddepcontrol.launch_dependents;");
    for (idx t = blockIdx.x; t * BLOCK * U < n4; t += gridDim.x) {
        const float4 *p = in + t * BLOCK * U + threadIdx.x;
        float4 v[U];
#pragma unroll
        for (int u = 0; u < U; u++) v[u] = CS ? __ldcs(p + u * BLOCK) : p[u * BLOCK];
#pragma unroll
        for (int u = 0; u < U; u++) { s[0] += v[u].x; s[1] += v[u].y; s[2] += v[u].z; s[3] += v[u].w; }
    }
    float t = block_sum((s[0] + s[1]) + (s[2] + s[3]), slots, BLOCK);
    if (END == 0) last(t, partials, counter, out, slots, BLOCK);
    else if (threadIdx.x == 0) partials[blockIdx.x] = t;
}
template <bool DEP>
__global__ void __launch_bounds__(256) second(const float *partials, int parts, float *out) {
    __shared__ float slots[32];
    if (DEP) asm volatile("griddepcontrol.wait;" ::: "memory");
    float t = 0;
    for (int i = threadIdx.x; i < parts; i += 256) t += __ldcg(partials + i);
    t = block_sum(t, slots, 256);
    if (threadIdx.x == 0) *out = t;
}
__device__ __forceinline__ void wait(uint32_t bar, uint32_t phase) {
    asm volatile("{\n\t.reg .pred p;\nL:\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t@p bra D;\n\tbra L;\nD:\n\t}" : : "r"(bar), "r"(phase) : "memory");
}
template <int BLOCK, int V, int STAGES>  // V float4 of a thread in a stage
__global__ void __launch_bounds__(BLOCK) bulk(const float4 *in, idx n4, float *partials, unsigned *counter, float *out) {
    extern __shared__ __align__(128) float4 ring[];
    __shared__ __align__(8) uint64_t bars[STAGES];
    __shared__ float slots[32];
    constexpr int CHUNK = BLOCK * V;
    const idx chunks = n4 / CHUNK;
    const uint32_t base = (uint32_t)__cvta_generic_to_shared(ring), bar0 = (uint32_t)__cvta_generic_to_shared(bars);
    auto issue = [&](idx c, int stage) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(bar0 + 8 * stage), "r"(CHUNK * 16) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
            : : "r"(base + stage * CHUNK * 16), "l"(in + c * CHUNK), "r"(CHUNK * 16), "r"(bar0 + 8 * stage) : "memory");
    };
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" : : "r"(bar0 + 8 * s));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (int s = 0; s < STAGES; s++) { idx c = blockIdx.x + (idx)s * gridDim.x; if (c < chunks) issue(c, s); }
    }
    __syncthreads();
    float s[4] = {0, 0, 0, 0};
    int stage = 0; uint32_t phase = 0;
    for (idx c = blockIdx.x; c < chunks; c += gridDim.x) {
        wait(bar0 + 8 * stage, phase);
        const float4 *p = ring + stage * CHUNK + threadIdx.x;
#pragma unroll
        for (int v = 0; v < V; v++) { float4 x = p[v * BLOCK]; s[0] += x.x; s[1] += x.y; s[2] += x.z; s[3] += x.w; }
        __syncthreads();
        if (threadIdx.x == 0) { idx next = c + (idx)STAGES * gridDim.x; if (next < chunks) issue(next, stage); }
        if (++stage == STAGES) { stage = 0; phase ^= 1; }
    }
    float t = block_sum((s[0] + s[1]) + (s[2] + s[3]), slots, BLOCK);
    last(t, partials, counter, out, slots, BLOCK);
}
struct Arena { char *data; size_t bytes; float *partials; unsigned *counter; float *out; cudaStream_t stream; };
template <class F> double timed(Arena &a, size_t bytes, F launch) {
    const int each = (int)std::max<size_t>(1, std::min<size_t>(320, ((size_t)400 << 20) / bytes));
    const size_t stride = std::max<size_t>(bytes, a.bytes / each / 256 * 256);
    cudaGraph_t g; cudaGraphExec_t x;
    CK(cudaStreamBeginCapture(a.stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < each; i++) launch((const float4 *)(a.data + std::min(i * stride, a.bytes - bytes) / 256 * 256));
    CK(cudaStreamEndCapture(a.stream, &g));
    CK(cudaGraphInstantiate(&x, g, 0));
    cudaEvent_t b, e; CK(cudaEventCreate(&b)); CK(cudaEventCreate(&e));
    std::vector<float> us;
    for (int r = 0; r < 12; r++) {
        CK(cudaEventRecord(b, a.stream)); CK(cudaGraphLaunch(x, a.stream)); CK(cudaEventRecord(e, a.stream)); CK(cudaEventSynchronize(e));
        float ms; CK(cudaEventElapsedTime(&ms, b, e)); if (r > 1) us.push_back(ms * 1e3f / each);
    }
    float got; CK(cudaMemcpy(&got, a.out, 4, cudaMemcpyDeviceToHost));
    if (got != (float)(bytes / 4)) { printf("WRONG %g of %zu\n", got, bytes / 4); }
    std::sort(us.begin(), us.end());
    CK(cudaGraphExecDestroy(x)); CK(cudaGraphDestroy(g)); CK(cudaEventDestroy(b)); CK(cudaEventDestroy(e));
    return us[us.size() / 2];
}
struct Best { double us = 1e9; std::string how; void offer(double t, const std::string &h) { if (t < us) { us = t; how = h; } } };
template <int BLOCK, int U, bool CS> void plains(Arena &a, size_t bytes, Best *best) {
    const idx n4 = bytes / 16;
    const idx tiles = (n4 + BLOCK * U - 1) / (BLOCK * U);
    if (n4 % (BLOCK * U)) return;
    for (int per : {1, 2, 4, 8, 16, 32}) {
        const int grid = (int)std::min<idx>(tiles, per * 132);
        std::string how = "block " + std::to_string(BLOCK) + " loads " + std::to_string(U) + " blocks " + std::to_string(grid) + (CS ? " streaming" : "");
        best[0].offer(timed(a, bytes, [&](const float4 *p) { plain<BLOCK, U, CS, 0><<<grid, BLOCK, 0, a.stream>>>(p, n4, a.partials, a.counter, a.out); }), how);
        if (bytes <= (1u << 28)) {
            best[1].offer(timed(a, bytes, [&](const float4 *p) { plain<BLOCK, U, CS, 1><<<grid, BLOCK, 0, a.stream>>>(p, n4, a.partials, a.counter, a.out); second<false><<<1, 256, 0, a.stream>>>(a.partials, grid, a.out); }), how);
            best[2].offer(timed(a, bytes, [&](const float4 *p) {
                plain<BLOCK, U, CS, 2><<<grid, BLOCK, 0, a.stream>>>(p, n4, a.partials, a.counter, a.out);
                cudaLaunchConfig_t c = {}; c.gridDim = 1; c.blockDim = 256; c.stream = a.stream;
                cudaLaunchAttribute at; at.id = cudaLaunchAttributeProgrammaticStreamSerialization; at.val.programmaticStreamSerializationAllowed = 1;
                c.attrs = &at; c.numAttrs = 1;
                CK(cudaLaunchKernelEx(&c, second<true>, (const float *)a.partials, grid, a.out)); }), how);
        }
        if (grid == tiles) break;
    }
}
template <int BLOCK, int V, int STAGES> void bulks(Arena &a, size_t bytes, Best &best) {
    const idx n4 = bytes / 16, chunks = n4 / (BLOCK * V);
    const int smem = BLOCK * V * STAGES * 16;
    if (n4 % (BLOCK * V)) return;
    CK(cudaFuncSetAttribute(bulk<BLOCK, V, STAGES>, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
    for (int per : {1, 2, 3, 4, 6, 8}) {
        if (per * (smem + 1024) > 227 * 1024 || per * BLOCK > 2048) break;
        const int grid = (int)std::min<idx>(chunks, per * 132);
        best.offer(timed(a, bytes, [&](const float4 *p) { bulk<BLOCK, V, STAGES><<<grid, BLOCK, smem, a.stream>>>(p, n4, a.partials, a.counter, a.out); }),
            "block " + std::to_string(BLOCK) + " chunk " + std::to_string(BLOCK * V * 16 / 1024) + " KiB stages " + std::to_string(STAGES) + " blocks " + std::to_string(grid));
        if (grid == chunks) break;
    }
}
__global__ void ones(float *p, size_t n) { for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) p[i] = 1; }
int main() {
    Arena a; a.bytes = (size_t)2 << 30;
    CK(cudaMalloc(&a.data, a.bytes)); CK(cudaMalloc(&a.partials, 1 << 22)); CK(cudaMalloc(&a.counter, 4)); CK(cudaMalloc(&a.out, 4));
    CK(cudaMemset(a.counter, 0, 4)); CK(cudaStreamCreate(&a.stream));
    ones<<<1056, 512>>>((float *)a.data, a.bytes / 4); CK(cudaDeviceSynchronize());
    for (int log : {16, 18, 20, 22, 24, 26, 28}) {
        const size_t bytes = (size_t)4 << log;
        Best best[3], b;
        plains<256, 2, false>(a, bytes, best); plains<256, 4, false>(a, bytes, best); plains<512, 2, false>(a, bytes, best);
        plains<512, 4, true>(a, bytes, best); plains<256, 8, true>(a, bytes, best); plains<256, 4, true>(a, bytes, best); plains<1024, 2, true>(a, bytes, best);
        bulks<128, 2, 4>(a, bytes, b); bulks<128, 4, 2>(a, bytes, b); bulks<256, 1, 4>(a, bytes, b); bulks<256, 2, 2>(a, bytes, b); bulks<256, 2, 4>(a, bytes, b); bulks<256, 4, 2>(a, bytes, b); bulks<256, 4, 4>(a, bytes, b); bulks<256, 2, 8>(a, bytes, b);
        bulks<512, 1, 4>(a, bytes, b); bulks<512, 2, 4>(a, bytes, b); bulks<512, 2, 8>(a, bytes, b); bulks<512, 4, 4>(a, bytes, b);
        printf("2^%d | %.3f %s | %.3f %s | %.3f %s | %.3f %s\n", log, best[0].us, best[0].how.c_str(), best[1].us, best[1].how.c_str(), best[2].us, best[2].how.c_str(), b.us, b.how.c_str());
        fflush(stdout);
    }
}
