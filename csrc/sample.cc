#include "sample.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace samebits {
namespace {

using Wide = unsigned __int128;
constexpr double kOne40 = 1099511627776.0;  // 2^40, the weight of the best id

struct Candidate {
  float logit;
  int32_t id;
  uint64_t weight;
  bool operator<(const Candidate& other) const {
    return logit > other.logit || (logit == other.logit && id < other.id);
  }
};

uint64_t total_weight(const std::vector<Candidate>& kept) {
  uint64_t sum = 0;
  for (const Candidate& c : kept) sum += c.weight;
  return sum;
}

void keep_top_k(std::vector<Candidate>& kept, int64_t k) {
  if (k == 0 || k >= int64_t(kept.size())) return;
  std::nth_element(kept.begin(), kept.begin() + k - 1, kept.end());
  kept.resize(size_t(k));
}

void keep_top_p(std::vector<Candidate>& kept, double top_p) {
  if (top_p >= 1.0) return;
  const Wide wanted = Wide(uint64_t(std::floor(top_p * 4294967296.0))) * total_weight(kept);
  // The prefix ends in [low, high): halve that by rank until little is left to sort. Sorting the whole would add no more
  // than an order that nothing asks for.
  auto low = kept.begin(), high = kept.end();
  uint64_t sum = 0;  // of the weights before low
  while (high - low > 64) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high);
    uint64_t half = 0;
    for (auto c = low; c < middle; ++c) half += c->weight;
    if ((Wide(sum + half) << 32) >= wanted) {
      high = middle;
    } else {
      low = middle;
      sum += half;
    }
  }
  std::sort(low, high);
  do {
    sum += (low++)->weight;
  } while (low < high && (Wide(sum) << 32) < wanted);
  kept.erase(low, kept.end());
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

int64_t argmax(const float* logits, int64_t vocab) {
  // The greatest in lanes, which compilers vectorise, then its first place. A NaN is greater than nothing.
  constexpr int64_t kAtOnce = 64;
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
    const Candidate c{logits[i], int32_t(i), 0};
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

int64_t sample(const SampleArgs& a, const KernelTable& table, ThreadPool& pool, Buffer& scratch) {
  const int64_t best = argmax(a.logits, a.vocab);
  if (a.temperature < 0x1p-17f) return best;
  scratch.grow(size_t(a.vocab) * 4);
  float* e = scratch.as<float>();
  table.exp_shifted({a.logits, a.vocab, a.logits[best], a.temperature, e}, pool);
  std::vector<Candidate> kept;
  kept.reserve(size_t(a.vocab));
  for (int64_t i = 0; i < a.vocab; ++i)
    // Ids without weight can still be among the first k, but never drawn.
    if (const uint64_t w = uint64_t(double(e[i]) * kOne40); w > 0) kept.push_back({a.logits[i], int32_t(i), w});
  if (a.top_k > 0 || a.top_p < 1.0) {
    std::vector<Candidate> first = kept;  // the candidates themselves stay in the order of ids, for the draw
    keep_top_k(first, a.top_k);
    keep_top_p(first, a.top_p);
    const Candidate last = *std::max_element(first.begin(), first.end());
    std::erase_if(kept, [&](const Candidate& c) { return last < c; });
  }
  if (a.min_p > 0) {
    const uint64_t least = uint64_t(std::ceil(a.min_p * kOne40));
    std::erase_if(kept, [&](const Candidate& c) { return c.weight < least && c.id != best; });
  }
  const uint64_t target = uint64_t(Wide(philox(a.seed, a.token_index, a.choice)) * total_weight(kept) >> 64);
  uint64_t sum = 0;
  for (const Candidate& c : kept)
    if ((sum += c.weight) > target) return c.id;
  return best;  // not reached: the sum of all weights exceeds every target
}

}  // namespace samebits
