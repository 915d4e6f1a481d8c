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

// Int8 values, each with `offset` added modulo 256, four a word; missing elements are zero.
inline void int8_row(const float* x, int64_t n, Int8Row row, int offset, uint32_t* out) {
  uint8_t* to = reinterpret_cast<uint8_t*>(out);
  const bool usable = row.inverse != 0.0f;
  for (int64_t k = 0; k < n && usable; ++k) {
    // Adding 1.5·2²³ rounds to the nearest integer, ties to even, and leaves it in the low bits.
    int q = int(word_of(x[k] * row.inverse + 0x1.8p+23f)) - 0x4b400000;
    q = q > 127 ? 127 : q;
    q = q < -127 ? -127 : q;
    to[k] = uint8_t(q + offset);
  }
  for (int64_t k = usable ? n : 0; k < ceil_div(n, 4) * 4; ++k) to[k] = uint8_t(offset);
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
    int8_row(source, w.cols, quantised, 0, units);
    w.scales.as<float>()[row] = quantised.scale;
    int32_t sum = 0;
    for (int64_t k = 0; k < count; ++k)
      for (int b = 0; b < 32; b += 8) sum += int8_t(units[k] >> b);
    w.sums.as<int32_t>()[row] = 128 * sum;
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

struct Fp32Product {
  using Sum = F32;
  static constexpr int64_t kBlockUnits = kKBlock;
  static SB_INLINE Sum start() { return zero(); }
  static SB_INLINE U32 weight(const uint32_t* w) { return load_u(w); }
  static SB_INLINE Sum step(Sum acc, uint32_t x, const uint32_t* w) {
    float value;
    __builtin_memcpy(&value, &x, 4);
    return fma(set1(value), load(reinterpret_cast<const float*>(w)), acc);
  }
};
struct Bf16Product {
  using Sum = F32;
  static constexpr int64_t kBlockUnits = kKBlock / 2;
  static SB_INLINE Sum start() { return zero(); }
  static SB_INLINE Sum step(Sum acc, uint32_t x, const uint32_t* w) { return dot2(acc, set1_u(x), load_u(w)); }
};
struct Int8Product {
  using Sum = U32;
  static constexpr int64_t kBlockUnits = kMaxInt8K;  // exact: one block
  static SB_INLINE Sum start() { return zero_u(); }
  static SB_INLINE Sum step(Sum acc, uint32_t x, const uint32_t* w) { return dot4(acc, set1_u(x), load_u(w)); }
};

// One tile: R rows (interleaved in x: unit k of row r at x[k·R + r]) by V panels. Block sums end in total.
template <class P, int R, int V>
SB_INLINE void product_tile(const uint32_t* x, const uint32_t* w, int64_t panel_stride, int64_t units,
                            typename P::Sum (&total)[R][V]) {
  for (int64_t begin = 0; begin < units; begin += P::kBlockUnits) {
    const int64_t end = begin + P::kBlockUnits < units ? begin + P::kBlockUnits : units;
    typename P::Sum acc[R][V];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) acc[r][v] = P::start();
    for (int64_t k = begin; k < end; ++k) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v)
          acc[r][v] = P::step(acc[r][v], x[k * R + r], w + v * panel_stride + k * kLanes);
    }
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        if constexpr (__is_same(typename P::Sum, F32))
          total[r][v] = begin == 0 ? acc[r][v] : add(total[r][v], acc[r][v]);
        else
          total[r][v] = acc[r][v];
  }
}

// What the tiles of one call share.
struct LinearJob {
  const LinearArgs* args;
  const uint32_t* x;      // units, tile after tile, rows interleaved within a tile
  const float* x_scales;  // int8
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
  typename P::Sum total[R][V];
  product_tile<P, R, V>(job.x + row0 * w.units(), w.panel(panel0), w.units() * kLanes, w.units(), total);
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) {
      const int64_t n = (panel0 + v) * kLanes, count = w.rows - n < kLanes ? w.rows - n : kLanes;
      F32 y;
      if constexpr (__is_same(P, Int8Product)) {
        U32 sum = sub_u(total[r][v], load_u(w.sums.as<uint32_t>() + n));
        y = mul(mul(to_float(sum), set1(job.x_scales[row0 + r])), load(w.scales.as<float>() + n));
      } else {
        y = total[r][v];
      }
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
template <int R>
constexpr int tile_vectors() {
  constexpr int room = kTileRows * kTileVectors / R;
  return room >= 8 ? 8 : room >= 4 ? 4 : room >= 2 ? 2 : 1;
}

template <class P, int R>
void linear_panels(const LinearJob& job, int64_t row0, int64_t panel, int64_t panel_end) {
  constexpr int V = tile_vectors<R>();
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
                         float* scales) {
  const PackedMatrix& w = *args.w;
  for (int64_t r = 0; r < rows; ++r) {
    const float* source = args.x + (row0 + r) * w.cols;
    if (w.profile == Profile::kFp32) {
      for (int64_t k = 0; k < w.cols; ++k) out[k * rows + r] = word_of(source[k]);
      continue;
    }
    if (w.profile == Profile::kBf16) {
      bf16_row(source, w.cols, line);
    } else {
      Int8Row quantised = int8_scale(source, w.cols);
      int8_row(source, w.cols, quantised, 128, line);
      scales[row0 + r] = quantised.scale;
    }
    for (int64_t k = 0; k < w.units(); ++k) out[k * rows + r] = line[k];
  }
}

template <class P>
void linear_product(const LinearArgs& args, ThreadPool& pool, Buffer& scratch) {
  const PackedMatrix& w = *args.w;
  LinearJob job{&args, nullptr, nullptr, ceil_div(args.m, kTileRows)};
  const int64_t line = ceil_div(w.units() + kLanes, kLanes) * kLanes, scales = ceil_div(args.m, kLanes) * kLanes;
  scratch.grow(size_t(args.m * w.units() + job.tiles * line + scales) * 4);
  uint32_t* x = scratch.as<uint32_t>();
  float* x_scales = reinterpret_cast<float*>(x + args.m * w.units() + job.tiles * line);
  auto convert = [&](int64_t tile) {
    const int64_t begin = job.tile_begin(tile), rows = job.tile_begin(tile + 1) - begin;
    convert_tile(args, begin, rows, x + begin * w.units(), x + args.m * w.units() + tile * line, x_scales);
  };
  if (job.tiles == 1) convert(0);
  else pool.run(job.tiles, convert);
  job.x = x;
  job.x_scales = x_scales;
  // About eight shares of panels a thread, so that a slow core does not hold up the rest.
  const int64_t share = ceil_div(ceil_div(w.panels(), int64_t(pool.threads()) * 8), 8) * 8;
  pool.run(ceil_div(w.panels(), share), [&](int64_t item) {
    const int64_t panel0 = item * share, end = panel0 + share < w.panels() ? panel0 + share : w.panels();
    constexpr int64_t step = 8;  // panels whose weights stay in cache while all tiles pass
    for (int64_t panel = panel0; panel < end; panel += step) {
      const int64_t stop = panel + step < end ? panel + step : end;
      for (int64_t tile = 0; tile < job.tiles; ++tile) {
        const int64_t begin = job.tile_begin(tile);
        linear_rows<P, kTileRows>(job, job.tile_begin(tile + 1) - begin, begin, panel, stop);
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
