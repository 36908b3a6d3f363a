// The two matmuls around SwiGLU as jobs of product_tiles.h: with them the activation needs no separate pass.
// Values with device code; the host part that fills them is swiglu_product.cu.
#pragma once

#include "zeno/kernels/cuda/hopper/product_tiles.h"
#include "zeno/kernels/cuda/swiglu.h"
#include "zeno/kernels/cuda/vector.h"

namespace zeno::cuda {

inline constexpr uint16_t kBothBlocks = 0b11;
inline constexpr int kVectorColumns = 8;  // 16 bytes of bf16

using Vector = Pack<__nv_bfloat16, kVectorColumns>;

__device__ inline Vector result(uint32_t results, int row, int column) {
  return {hopper::load_vector(results + uint32_t(row * kResultPitch + column) * 2)};
}

// So many rows further down. Strides of 32 bits take half the instructions.
__device__ inline __nv_bfloat16* below(__nv_bfloat16* from, int rows, int stride) {
  return from + int64_t(rows) * stride;
}

// Where SwiGLU reads and writes: gate_up [R, 2F], y [R, F] or null.
struct SwigluMatrices {
  __nv_bfloat16 *gate_up = nullptr, *y = nullptr;
  int gate_up_stride = 0, y_stride = 0;
  int64_t rows = 0, width = 0;  // R, F

  // How many rows of a part there are in this column.
  __device__ int rows_from(int64_t row, int64_t column) const {
    return column < width ? int(min(rows - row, int64_t(kPartRows))) : 0;
  }
  __device__ __nv_bfloat16* gate_at(int64_t row, int64_t column) const {
    return gate_up + row * gate_up_stride + column;
  }
  __device__ __nv_bfloat16* y_at(int64_t row, int64_t column) const { return y + row * y_stride + column; }
};

// What both have: A, by blocks of 128 rows x kTileDepth, and where results go.
struct SwigluJob {
  CUtensorMap a;
  TileOrder order;
  int depth_blocks = 0;
  SwigluMatrices out;

  __device__ void load_a(uint32_t to, uint32_t tile_row, int block, uint32_t barrier) const {
    hopper::load_tile(to, &a, block * kTileDepth, int(tile_row) * kBlockRows, barrier);
  }
};

// gate_up = x · weightᵀ with weight [2F, C], y = silu(gate) · up. A tile has 128 columns of the gate, and the
// same 128 of up beside them.
struct SwigluForwardJob : SwigluJob {
  static constexpr bool kAcross = false;
  static constexpr int kColumns = kTileColumns / 2;  // of y in a tile

  CUtensorMap gate_weight, up_weight;  // boxes of 128 rows x kTileDepth

  __device__ void load_b(uint32_t to, uint32_t part, uint32_t column, int block, uint32_t barrier) const {
    hopper::load_tile_for(kBothBlocks, to + part * (kTileBBytes / 2), part == 0 ? &gate_weight : &up_weight,
                          block * kTileDepth, int(column) * kColumns, barrier);
  }

  // Half a warp has a row. Results of four are loaded before the first is stored: loads do not pass stores.
  template <class Wait>
  __device__ void finish(uint32_t results, int64_t first_row, uint32_t tile_column, const Wait& wait) const {
    constexpr int kAhead = 4, kStep = kFinishWarps * 2;
    const int thread = int(threadIdx.x) - 32, begin = thread % 16 * kVectorColumns;
    const int64_t column = int64_t(tile_column) * kColumns + begin;
    const int end = out.rows_from(first_row, column);
    __nv_bfloat16 *gate_up = out.gate_at(first_row, column), *y = out.y_at(first_row, column);
    wait();
    for (int first = thread / 16; first < end; first += kAhead * kStep) {
      Vector gates[kAhead], ups[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int row = min(first + i * kStep, end - 1);
        gates[i] = result(results, row, begin);
        ups[i] = result(results, row, begin + kColumns);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int row = first + i * kStep;
        if (row < end)
          write_row(below(gate_up, row, out.gate_up_stride), below(y, row, out.y_stride), gates[i], ups[i]);
      }
    }
  }

 private:
  __device__ void write_row(__nv_bfloat16* to, __nv_bfloat16* y, const Vector& gates,
                            const Vector& ups) const {
    store_once<kVectorColumns>(to, gates);
    store_once<kVectorColumns>(to + out.width, ups);
    float gate[kVectorColumns], up[kVectorColumns];
    unpack(gates, gate);
    unpack(ups, up);
    swiglu<__nv_bfloat16>(gate, up);
    store_once<kVectorColumns>(y, pack<__nv_bfloat16>(up));
  }
};

// dact = dy · weight with weight [C, F], which stays in the chip; gate_up becomes its gradient and y, when
// wanted, the result of forward once more.
struct SwigluBackwardJob : SwigluJob {
  static constexpr bool kAcross = true;
  static constexpr int kColumns = kTileColumns;
  static constexpr int kBoxColumns = hopper::kRowValues;

  CUtensorMap weight;  // boxes of kTileDepth rows x kBoxColumns: C runs down

  __device__ void load_b(uint32_t to, uint32_t part, uint32_t column, int block, uint32_t barrier) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int box = int(part) * 2 + i;
      hopper::load_tile_for(kBothBlocks, to + uint32_t(box) * (kTileBBytes / 4), &weight,
                            int(column) * kColumns + box * kBoxColumns, block * kTileDepth, barrier);
    }
  }

  // A warp has a row. It asks for four before it has to wait, and for the next four before it computes them.
  template <class Wait>
  __device__ void finish(uint32_t results, int64_t first_row, uint32_t tile_column, const Wait& wait) const {
    constexpr int kStep = kFinishWarps * kAhead;
    const int begin = int(threadIdx.x) % 32 * kVectorColumns;
    const int64_t column = int64_t(tile_column) * kColumns + begin;
    const int end = out.rows_from(first_row, column);
    const Place place{results + uint32_t(begin) * 2, end, out.gate_at(first_row, column),
                      out.y ? out.y_at(first_row, column) : nullptr};
    int first = (int(threadIdx.x) / 32 - 1) * kAhead;
    Rows rows, next;
    if (first < end) rows = fetch(place, first);
    wait();
#pragma unroll 1
    for (; first < end; first += 2 * kStep) {  // two sets of registers, so that none is copied
      if (first + kStep < end) next = fetch(place, first + kStep);
      write_gradients(place, first, rows);
      if (first + 2 * kStep < end) rows = fetch(place, first + 2 * kStep);
      if (first + kStep < end) write_gradients(place, first + kStep, next);
    }
  }

 private:
  static constexpr int kAhead = 4;
  struct Rows {
    Vector gates[kAhead], ups[kAhead];
  };
  // Of a thread, where the first row of a part lies, and how many there are.
  struct Place {
    uint32_t results;
    int end;
    __nv_bfloat16 *gate_up, *y;
  };

  // Behind the end the last row is read once more and not used: a branch per row would wait for each.
  __device__ Rows fetch(const Place& place, int first) const {
    Rows rows;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const __nv_bfloat16* from = below(place.gate_up, min(first + i, place.end - 1), out.gate_up_stride);
      rows.gates[i] = load_once<kVectorColumns>(from);
      rows.ups[i] = load_once<kVectorColumns>(from + out.width);
    }
    return rows;
  }

  __device__ void write_gradients(const Place& place, int first, const Rows& rows) const {
    Vector dacts[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) dacts[i] = result(place.results, first + i, 0);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int row = first + i;
      if (row >= place.end) break;
      float gate[kVectorColumns], up[kVectorColumns], dact[kVectorColumns];
      unpack(dacts[i], dact);
      unpack(rows.gates[i], gate);
      unpack(rows.ups[i], up);
      swiglu_gradients<__nv_bfloat16>(gate, up, dact);
      __nv_bfloat16* to = below(place.gate_up, row, out.gate_up_stride);
      store_once<kVectorColumns>(to, pack<__nv_bfloat16>(gate));
      store_once<kVectorColumns>(to + out.width, pack<__nv_bfloat16>(up));
      if (place.y) store_once<kVectorColumns>(below(place.y, row, out.y_stride), pack<__nv_bfloat16>(dact));
    }
  }
};

}  // namespace zeno::cuda
