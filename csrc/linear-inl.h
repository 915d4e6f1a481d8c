// Body of linear.h for one instruction set.

// ---- conversion of rows to the profile's units, and int8 quantisation ----------------------------------------------

SB_INLINE uint32_t word_of(float x) { uint32_t u; __builtin_memcpy(&u, &x, 4); return u; }

// Pairs of bf16 from n floats; a missing second element is +0.
inline void bf16_row(const float* x, int64_t n, uint32_t* out) {
  int64_t k = 0;
  uint32_t bits[16];
  for (; k < n; k += kLanes) {
    int64_t rest = n - k;
    store_u(bits, bf16_bits(rest >= kLanes ? load(x + k) : load_partial(x + k, rest, 0.0f)));
    int64_t pairs = rest >= kLanes ? kLanes / 2 : (rest + 1) / 2;
    for (int64_t j = 0; j < pairs; ++j) out[k / 2 + j] = bits[2 * j] << 16 | bits[2 * j + 1];
  }
}

struct Int8Row { float scale, inverse; };

// Scale of a row; a NaN scale marks a row with a non-finite value. Patterns of finite floats order like integers.
inline Int8Row int8_scale(const float* x, int64_t n) {
  uint32_t most = 0;
  for (int64_t k = 0; k < n; ++k) {
    uint32_t magnitude = word_of(x[k]) & 0x7fffffffu;
    most = magnitude > most ? magnitude : most;
  }
  if (most >= 0x7f800000u) return {__builtin_nanf(""), 0.0f};  // inverse 0: all values 0
  float a;
  __builtin_memcpy(&a, &most, 4);
  if (a < 0x1p-100f) return {0.0f, 0.0f};
  return {a / 127.0f, 127.0f / a};
}

// Int8 values from x, four a word; missing elements of the last word are zero. Returns their sum.
inline int32_t int8_row(const float* x, int64_t n, Int8Row row, uint32_t* out) {
  int8_t* to = reinterpret_cast<int8_t*>(out);
  const bool usable = row.inverse != 0.0f;
  int32_t sum = 0;
  for (int64_t k = 0; k < n && usable; ++k) {
    // Adding 1.5·2²³ rounds to the nearest integer, ties to even, and leaves it in the low bits.
    int q = int(word_of(x[k] * row.inverse + 0x1.8p+23f)) - 0x4b400000;
    q = q > 127 ? 127 : q;
    q = q < -127 ? -127 : q;
    to[k] = int8_t(q);
    sum += q;
  }
  for (int64_t k = usable ? n : 0; k < ceil_div(n, 4) * 4; ++k) to[k] = 0;
  return sum;
}

// ---- packing of weights ---------------------------------------------------------------------------------------------

inline void pack_weight_row(PackedMatrix& w, int64_t row, const float* source, uint32_t* units) {
  const int64_t lane = row % kLanes, count = w.units();
  uint32_t* panel = w.panel(row / kLanes);
  if (w.profile == Profile::kFp32) {
    for (int64_t k = 0; k < count; ++k) panel[k * kLanes + lane] = word_of(source[k]);
    return;
  }
  if (w.profile == Profile::kBf16) {
    bf16_row(source, w.cols, units);
  } else {
    Int8Row quantised = int8_scale(source, w.cols);
    int8_row(source, w.cols, quantised, units);
    for (int64_t k = 0; k < count; ++k) units[k] ^= 0x80808080u;  // 128 added to each: unsigned bytes
    w.scales.as<float>()[row] = quantised.scale;
  }
  for (int64_t k = 0; k < count; ++k) panel[k * kLanes + lane] = units[k];
}

inline void pack_weights(PackedMatrix& w, int64_t row0, int64_t rows, const float* source, ThreadPool& pool) {
  const int64_t first = row0 / kLanes, last = ceil_div(row0 + rows, kLanes);
  pool.run(last - first, [&](int64_t item) {
    uint32_t* units = static_cast<uint32_t*>(__builtin_malloc(size_t(w.units() + kLanes) * 4));
    for (int64_t row = (first + item) * kLanes; row < (first + item + 1) * kLanes; ++row)
      if (row >= row0 && row < row0 + rows) pack_weight_row(w, row, source + (row - row0) * w.cols, units);
    __builtin_free(units);
  });
}

// ---- the product ----------------------------------------------------------------------------------------------------

// Each product says how a block starts, how one unit is added, and how a finished block joins the blocks before it.
// `Int8Block` is what a row brings for one block (int8 only).
struct Int8Block { float scale; int32_t start; };

struct FloatProduct {
  using Sum = F32;
  static constexpr int kRows = kTileRows;
  static SB_INLINE Sum start(const Int8Block*) { return zero(); }
  static SB_INLINE F32 join(bool first, F32 total, Sum block, const Int8Block*) {
    return first ? block : add(total, block);
  }
};
struct Fp32Product : FloatProduct {
  static constexpr int64_t kBlockUnits = kKBlock;
  static SB_INLINE Sum step(Sum acc, uint32_t x, const uint32_t* w) {
    float value;
    __builtin_memcpy(&value, &x, 4);
    return fma(set1(value), load(reinterpret_cast<const float*>(w)), acc);
  }
};
struct Bf16Product : FloatProduct {
  static constexpr int64_t kBlockUnits = kKBlock / 2;
  static SB_INLINE Sum step(Sum acc, uint32_t x, const uint32_t* w) { return dot2(acc, set1_u(x), load_u(w)); }
};
struct Int8Product {
  using Sum = U32;
  // Blocks are short and sums and totals live side by side; with more rows they spill (381 against 640 GOP/s).
  static constexpr int kRows = kTileRows > 3 ? kTileRows * 2 / 3 : 1;
  static constexpr int64_t kBlockUnits = kInt8Block / 4;
  // Weights are stored with 128 added; starting at -128 times the sum of the inputs takes it out again.
  static SB_INLINE Sum start(const Int8Block* b) { return set1_u(uint32_t(b->start)); }
  static SB_INLINE Sum step(Sum acc, uint32_t x, const uint32_t* w) { return dot4(acc, load_u(w), set1_u(x)); }
  static SB_INLINE F32 join(bool first, F32 total, Sum block, const Int8Block* b) {
    return first ? mul(to_float(block), set1(b->scale)) : fma(to_float(block), set1(b->scale), total);
  }
};

// One tile: R rows (interleaved in x: unit k of row r at x[k·R + r]; so are the blocks) by V panels.
template <class P, int R, int V>
SB_INLINE void product_tile(const uint32_t* x, const Int8Block* blocks, const uint32_t* w, int64_t panel_stride,
                            int64_t units, F32 (&total)[R][V]) {
  for (int64_t begin = 0; begin < units; begin += P::kBlockUnits, blocks += R) {
    const int64_t end = begin + P::kBlockUnits < units ? begin + P::kBlockUnits : units;
    typename P::Sum acc[R][V];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) acc[r][v] = P::start(blocks + r);
    for (int64_t k = begin; k < end; ++k) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v)
          acc[r][v] = P::step(acc[r][v], x[k * R + r], w + v * panel_stride + k * kLanes);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) total[r][v] = P::join(begin == 0, total[r][v], acc[r][v], blocks + r);
  }
}

// What the tiles of one call share.
struct LinearJob {
  const LinearArgs* args;
  const uint32_t* x;        // units, tile after tile, rows interleaved within a tile
  const Int8Block* blocks;  // int8: of each row and block, in the order of x
  int64_t block_count;
  int64_t tiles;
  // Rows are spread evenly: the first `m % tiles` tiles have one more.
  int64_t tile_begin(int64_t t) const {
    const int64_t base = args->m / tiles, extra = args->m % tiles;
    return t * base + (t < extra ? t : extra);
  }
};

template <class P, int R, int V>
void linear_tile(const LinearJob& job, int64_t row0, int64_t panel0) {
  const PackedMatrix& w = *job.args->w;
  F32 total[R][V];
  product_tile<P, R, V>(job.x + row0 * w.units(), job.blocks + row0 * job.block_count, w.panel(panel0),
                        w.units() * kLanes, w.units(), total);
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      const int64_t n = (panel0 + v) * kLanes, count = w.rows - n < kLanes ? w.rows - n : kLanes;
      F32 y = total[r][v];
      if constexpr (__is_same(P, Int8Product)) y = mul(y, load(w.scales.as<float>() + n));
      float* out = job.args->out + (row0 + r) * w.rows + n;
      if (count == kLanes) {
        store(out, job.args->residual ? add(load(out), y) : y);
      } else {
        if (job.args->residual) y = add(load_partial(out, count, 0.0f), y);
        store_partial(out, y, count);
      }
    }
  }
}

// Few rows leave registers free: more panels at once hide the latency of the chains.
template <class P, int R>
constexpr int tile_vectors() {
  constexpr int room = P::kRows * kTileVectors / R;
  return room >= 8 ? 8 : room >= 4 ? 4 : room >= 2 ? 2 : 1;
}

template <class P, int R>
void linear_panels(const LinearJob& job, int64_t row0, int64_t panel, int64_t panel_end) {
  constexpr int V = tile_vectors<P, R>();
  for (; panel + V <= panel_end; panel += V) linear_tile<P, R, V>(job, row0, panel);
  for (; panel < panel_end; ++panel) linear_tile<P, R, 1>(job, row0, panel);
}

template <class P, int R>
void linear_rows(const LinearJob& job, int64_t rows, int64_t row0, int64_t panel, int64_t panel_end) {
  if (rows == R) return linear_panels<P, R>(job, row0, panel, panel_end);
  if constexpr (R > 1) linear_rows<P, R - 1>(job, rows, row0, panel, panel_end);
}

// Converts and interleaves the rows of one tile.
inline void convert_tile(const LinearArgs& args, int64_t row0, int64_t rows, uint32_t* out, uint32_t* line,
                         Int8Block* blocks) {
  const PackedMatrix& w = *args.w;
  for (int64_t r = 0; r < rows; ++r) {
    const float* source = args.x + (row0 + r) * w.cols;
    if (w.profile == Profile::kFp32) {
      for (int64_t k = 0; k < w.cols; ++k) out[k * rows + r] = word_of(source[k]);
      continue;
    }
    if (w.profile == Profile::kBf16) bf16_row(source, w.cols, line);
    for (int64_t k = 0; w.profile == Profile::kInt8 && k < w.cols; k += kInt8Block) {
      const int64_t count = w.cols - k < kInt8Block ? w.cols - k : kInt8Block;
      const Int8Row quantised = int8_scale(source + k, count);
      const int32_t sum = int8_row(source + k, count, quantised, line + k / 4);
      blocks[k / kInt8Block * rows + r] = {quantised.scale, -128 * sum};
    }
    for (int64_t k = 0; k < w.units(); ++k) out[k * rows + r] = line[k];
  }
}

template <class P>
void linear_product(const LinearArgs& args, ThreadPool& pool, Buffer& scratch) {
  const PackedMatrix& w = *args.w;
  const int64_t block_count = w.profile == Profile::kInt8 ? ceil_div(w.cols, kInt8Block) : 0;
  LinearJob job{&args, nullptr, nullptr, block_count, ceil_div(args.m, P::kRows)};
  const int64_t line = ceil_div(w.units() + kLanes, kLanes) * kLanes;
  const int64_t words = args.m * w.units() + job.tiles * line;
  scratch.grow(size_t(words) * 4 + size_t(args.m * block_count) * sizeof(Int8Block));
  uint32_t* x = scratch.as<uint32_t>();
  Int8Block* blocks = reinterpret_cast<Int8Block*>(x + words);
  auto convert = [&](int64_t tile) {
    const int64_t begin = job.tile_begin(tile), rows = job.tile_begin(tile + 1) - begin;
    convert_tile(args, begin, rows, x + begin * w.units(), x + args.m * w.units() + tile * line,
                 blocks + begin * block_count);
  };
  if (job.tiles == 1) convert(0);
  else pool.run(job.tiles, convert);
  job.x = x;
  job.blocks = blocks;
  // About eight shares of panels a thread, so that a slow core does not hold up the rest.
  const int64_t share = ceil_div(ceil_div(w.panels(), int64_t(pool.threads()) * 8), 8) * 8;
  pool.run(ceil_div(w.panels(), share), [&](int64_t item) {
    const int64_t panel0 = item * share, end = panel0 + share < w.panels() ? panel0 + share : w.panels();
    constexpr int64_t step = 8;  // panels whose weights stay in cache while all tiles pass
    for (int64_t panel = panel0; panel < end; panel += step) {
      const int64_t stop = panel + step < end ? panel + step : end;
      for (int64_t tile = 0; tile < job.tiles; ++tile) {
        const int64_t begin = job.tile_begin(tile);
        linear_rows<P, P::kRows>(job, job.tile_begin(tile + 1) - begin, begin, panel, stop);
      }
    }
  });
}

inline void linear(const LinearArgs& args, ThreadPool& pool, Buffer& scratch) {
  switch (args.w->profile) {
    case Profile::kFp32: return linear_product<Fp32Product>(args, pool, scratch);
    case Profile::kBf16: return linear_product<Bf16Product>(args, pool, scratch);
    case Profile::kInt8: return linear_product<Int8Product>(args, pool, scratch);
  }
}
