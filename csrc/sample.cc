#include "sample.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

namespace samebits {
namespace {

using Wide = unsigned __int128;
constexpr double kOne40 = 1099511627776.0;  // 2^40, the weight of the best id
constexpr int64_t kAtOnce = 64;             // ids in a loop that compilers turn into vectors

struct Candidate {
  float logit;
  int32_t id;
  uint64_t share;  // of what a prefix of the order is cut by: its weight, or 1 for a count
  bool operator<(const Candidate& other) const {
    return logit > other.logit || (logit == other.logit && id < other.id);
  }
};

// A row while ids are dropped from it: one that is dropped gets the weight 0.
struct Row {
  const float* logits;
  int64_t vocab;
  uint64_t* weights;
};

uint64_t total_weight(const Row& row) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < row.vocab; ++i) sum += row.weights[i];
  return sum;
}

void drop_after(const Candidate& last, const Row& row) {
  for (int32_t i = 0; i < int32_t(row.vocab); ++i) {  // in 32 bits, so that compilers turn it into vectors
    const float l = row.logits[i];
    const int32_t kept = (l > last.logit) | ((l == last.logit) & (i <= last.id));
    row.weights[i] &= uint64_t(-int64_t(kept));
  }
}

// Ids in buckets whose order is the order of ids: each step from a logit to its bucket is monotone, roundings included.
// 32 units of T below the best, where weights are 0, is the end.
class Buckets {
 public:
  static constexpr int kCount = 2048;

  Buckets(const Row& row, float most, float temperature) : row_(row), most_(most) {
    float least[kAtOnce];
    std::fill(least, least + kAtOnce, most);
    int64_t i = 0;
    for (; i + kAtOnce <= row.vocab; i += kAtOnce)
      for (int64_t j = 0; j < kAtOnce; ++j) least[j] = std::min(least[j], row.logits[i + j]);
    for (; i < row.vocab; ++i) least[0] = std::min(least[0], row.logits[i]);
    const float range = std::min(most - *std::min_element(least, least + kAtOnce), 32 * temperature);
    scale_ = range > 0 ? std::min((kCount - 1) / range, 0x1p127f) : 0;  // finite, so that the best is in bucket 0
  }

  // The bucket in which the shortest prefix of the order ends for which reached(sum of shares) holds; it must hold for the
  // whole. Adds the shares of the buckets before to sum.
  template <class Share, class Reached>
  std::vector<Candidate> where_prefix_ends(const Share& share, const Reached& reached, uint64_t& sum) const {
    std::vector<uint64_t> shares(kCount, 0);
    each([&](int64_t i, int bucket) { shares[size_t(bucket)] += share(i); });
    int last = 0;
    for (; !reached(sum + shares[size_t(last)]); ++last) sum += shares[size_t(last)];
    std::vector<Candidate> found;
    each([&](int64_t i, int bucket) {
      if (bucket == last) found.push_back({row_.logits[i], int32_t(i), share(i)});
    });
    return found;
  }

 private:
  template <class Item>
  void each(const Item& item) const {
    int buckets[kAtOnce];
    for (int64_t i = 0; i < row_.vocab; i += kAtOnce) {
      const int64_t count = std::min(kAtOnce, row_.vocab - i);
      for (int64_t j = 0; j < count; ++j) {
        const float b = (most_ - row_.logits[i + j]) * scale_;
        buckets[j] = int(b < float(kCount - 1) ? b : float(kCount - 1));  // excluded ids, too: b is +infinity or a NaN
      }
      for (int64_t j = 0; j < count; ++j) item(i + j, buckets[j]);
    }
  }

  const Row& row_;
  float most_, scale_;
};

// The last candidate of the shortest prefix of their order, at least one, for which reached(sum + their shares) holds.
template <class Reached>
Candidate last_of_prefix(std::vector<Candidate>& candidates, uint64_t sum, const Reached& reached) {
  auto low = candidates.begin(), high = candidates.end();
  while (high - low > 64) {  // it is in [low, high): halve that by rank until little is left to sort
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high);
    uint64_t half = 0;
    for (auto c = low; c < middle; ++c) half += c->share;
    if (reached(sum + half)) {
      high = middle;
    } else {
      low = middle;
      sum += half;
    }
  }
  std::sort(low, high);
  for (sum += low->share; !reached(sum); sum += low->share) ++low;
  return *low;
}

void keep_top_k(const Row& row, const Buckets& buckets, int64_t k) {
  const auto reached = [&](uint64_t count) { return count >= uint64_t(k); };
  uint64_t before = 0;
  auto ends = buckets.where_prefix_ends([](int64_t) { return uint64_t(1); }, reached, before);
  drop_after(last_of_prefix(ends, before, reached), row);
}

void keep_top_p(const Row& row, const Buckets& buckets, double top_p, bool few) {
  const Wide wanted = Wide(uint64_t(std::floor(top_p * 4294967296.0))) * total_weight(row);
  const auto reached = [&](uint64_t sum) { return (Wide(sum) << 32) >= wanted; };
  const auto weight = [&](int64_t i) { return row.weights[i]; };
  uint64_t before = 0;
  std::vector<Candidate> ends;
  if (few) {  // not worth a bucket
    for (int64_t i = 0; i < row.vocab; ++i)
      if (row.weights[i] > 0) ends.push_back({row.logits[i], int32_t(i), row.weights[i]});
  } else {
    ends = buckets.where_prefix_ends(weight, reached, before);
  }
  drop_after(last_of_prefix(ends, before, reached), row);
}

int64_t draw_row(const Row& row, int64_t best, const Draw& a) {
  if (a.top_k > 0 || a.top_p < 1.0) {
    const Buckets buckets(row, row.logits[best], a.temperature);
    const bool cut = a.top_k > 0 && a.top_k < row.vocab;
    if (cut) keep_top_k(row, buckets, a.top_k);
    if (a.top_p < 1.0) keep_top_p(row, buckets, a.top_p, cut);
  }
  if (a.min_p > 0) {
    const uint64_t least = uint64_t(std::ceil(a.min_p * kOne40)), of_best = row.weights[best];
    for (int64_t i = 0; i < row.vocab; ++i) row.weights[i] &= -uint64_t(row.weights[i] >= least);
    row.weights[best] = of_best;
  }
  const uint64_t target = uint64_t(Wide(philox(a.seed, a.token_index, a.choice)) * total_weight(row) >> 64);
  uint64_t sum = 0;
  for (int64_t i = 0; i < row.vocab; ++i)
    if ((sum += row.weights[i]) > target) return i;
  return best;  // not reached: the sum of all weights exceeds every target
}

}  // namespace

float log_exact(float x) {
  if (x != x || x > 0x1.fffffep127f) return x;
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  int e = int(bits >> 23) - 127;
  const uint32_t mantissa = (bits & 0x7fffffu) | 0x3f800000u;
  float whole;
  __builtin_memcpy(&whole, &mantissa, 4);
  double m = whole;
  if (m > 0x1.6a09e667f3bcdp+0) {
    m = m / 2;
    e = e + 1;
  }
  const double z = (m - 1) / (m + 1), s = z * z;
  double q = 1.0 / 19;
  for (int odd = 17; odd >= 3; odd -= 2) q = q * s + 1.0 / odd;
  q = q * s + 1.0;
  return float((2 * z) * q + e * 0x1.62e42fefa39efp-1);
}

uint64_t philox(int64_t seed, uint32_t token_index, uint32_t choice) {
  uint32_t c[4] = {token_index, 0, choice, 0};
  uint32_t key[2] = {uint32_t(uint64_t(seed)), uint32_t(uint64_t(seed) >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(0xD2511F53u) * c[0], b = uint64_t(0xCD9E8D57u) * c[2];
    const uint32_t next[4] = {uint32_t(b >> 32) ^ c[1] ^ key[0], uint32_t(b), uint32_t(a >> 32) ^ c[3] ^ key[1],
                              uint32_t(a)};
    std::copy(next, next + 4, c);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return uint64_t(c[0]) | uint64_t(c[1]) << 32;
}

void exclude(const float* logits, const bool* allowed, int64_t vocab, float* out) {
  for (int64_t i = 0; i < vocab; ++i) out[i] = allowed[i] ? logits[i] : -__builtin_inff();
}

int64_t argmax(const float* logits, int64_t vocab) {
  // The greatest in lanes, which compilers vectorise, then its first place. A NaN is greater than nothing.
  float most[kAtOnce];
  std::fill(most, most + kAtOnce, logits[0]);
  int64_t i = 0;
  for (; i + kAtOnce <= vocab; i += kAtOnce)
    for (int64_t j = 0; j < kAtOnce; ++j) most[j] = logits[i + j] > most[j] ? logits[i + j] : most[j];
  for (; i < vocab; ++i) most[0] = logits[i] > most[0] ? logits[i] : most[0];
  for (int64_t j = 1; j < kAtOnce; ++j) most[0] = most[j] > most[0] ? most[j] : most[0];
  for (i = 0; i + kAtOnce <= vocab; i += kAtOnce) {
    uint32_t found = 0;
    for (int64_t j = 0; j < kAtOnce; ++j) found |= uint32_t(logits[i + j] == most[0]);
    if (found) break;
  }
  for (; i < vocab; ++i)
    if (logits[i] == most[0]) return i;
  return 0;  // the first logit is a NaN
}

void topk(const float* logits, int64_t vocab, int64_t k, int32_t* ids, float* values) {
  std::vector<Candidate> first;  // a heap, the last in the order on top
  first.reserve(size_t(k));
  for (int64_t i = 0; i < vocab && k > 0; ++i) {
    const Candidate c{logits[i], int32_t(i), 1};
    if (int64_t(first.size()) == k) {
      if (!(c < first.front())) continue;
      std::pop_heap(first.begin(), first.end());
      first.pop_back();
    }
    first.push_back(c);
    std::push_heap(first.begin(), first.end());
  }
  std::sort_heap(first.begin(), first.end());
  for (int64_t i = 0; i < k; ++i) {
    ids[i] = first[size_t(i)].id;
    values[i] = first[size_t(i)].logit;
  }
}

void sample(const SampleArgs& a, const KernelTable& table, ThreadPool& pool, Buffer& scratch) {
  const int64_t padded = ceil_div(a.vocab, kLanes) * kLanes, slot_bytes = padded * int64_t(sizeof(uint64_t) + sizeof(float));
  scratch.grow(size_t(pool.threads() * slot_bytes));
  std::atomic<int64_t> next{0};
  pool.run(pool.threads(), [&](int64_t slot) {
    ThreadPool alone(1);  // an operation on one row, within this thread
    uint64_t* weights = reinterpret_cast<uint64_t*>(scratch.as<char>() + slot * slot_bytes);
    float* e = reinterpret_cast<float*>(weights + padded);
    for (int64_t r; (r = next.fetch_add(1, std::memory_order_relaxed)) < a.rows;) {
      const float* logits = a.logits + r * a.vocab;
      const int64_t best = argmax(logits, a.vocab);
      a.out[r] = int32_t(best);
      const Draw& draw = a.draws[r];
      if (draw.temperature < 0x1p-17f || !std::isfinite(logits[best])) continue;  // the latter never from the engine
      table.exp_shifted({logits, a.vocab, logits[best], draw.temperature, e}, alone);
      // Through a signed integer, which is one instruction: weights are at most 2^40.
      for (int64_t i = 0; i < a.vocab; ++i) weights[i] = uint64_t(int64_t(double(e[i]) * kOne40));
      a.out[r] = int32_t(draw_row({logits, a.vocab, weights}, best, draw));
    }
  });
}

}  // namespace samebits
