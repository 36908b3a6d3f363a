#include "exchange_contract.h"

#include <array>
#include <numeric>
#include <string>
#include <vector>

#include "contract_support.h"
#include "zeno/base/error.h"
#include "zeno/comm/cost.h"

namespace zeno::comm::contract {
namespace {

uint64_t mixed(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t h = a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u + c * 0x94d049bb133111ebu + 1;
  h = (h ^ (h >> 29)) * 0xbf58476d1ce4e5b9u;
  return h ^ (h >> 32);
}

// Elements that rank `from` sends to rank `to`.
int64_t count_between(int from, int to, int salt) {
  const uint64_t h = mixed(uint64_t(from), uint64_t(to), uint64_t(salt));
  constexpr std::array<uint64_t, 4> kBelow{1, 9, 700, 9000};
  return int64_t((h >> 8) % kBelow[h % 4]);
}

std::byte byte_between(int from, int to, int64_t index, int salt) {
  return std::byte(mixed(uint64_t(from * 64 + to), uint64_t(index), uint64_t(salt)) & 0xff);
}

// One part of an exchange, with the memory and the counts of this rank.
struct Exchanged {
  int salt;
  size_t width;
  std::vector<int64_t> sent, received;
  Bytes send, recv;

  Exchanged(Site& site, Memory memory, DType dtype, int of)
      : salt(of),
        width(size_of(dtype)),
        sent(counts(site, [&](int other) { return count_between(site.rank(), other, of); })),
        received(counts(site, [&](int other) { return count_between(other, site.rank(), of); })),
        send(site, memory, bytes(sent)),
        recv(site, memory, bytes(received), width) {
    std::byte* to = send.host();
    for_bytes(sent, [&](int other, int64_t i) { *to++ = byte_between(site.rank(), other, i, salt); });
    send.upload();
  }

  ExchangePart part() const { return {send.data(), recv.data(), sent, received}; }

  void check(Site& site) {
    recv.download();
    const std::byte* from = recv.host();
    for_bytes(received, [&](int other, int64_t i) {
      const std::byte want = byte_between(other, site.rank(), i, salt), got = *from++;
      expect(got == want, "byte {} of the slice from rank {} is {}, expected {}", i, other, int(got),
             int(want));
    });
    expect(*from == std::byte(0xee), "the exchange wrote past its end");
  }

 private:
  template <class Count>
  static std::vector<int64_t> counts(Site& site, const Count& count) {
    std::vector<int64_t> all;
    for (int other = 0; other < site.size(); ++other) all.push_back(count(other));
    return all;
  }
  size_t bytes(const std::vector<int64_t>& counts) const {
    return size_t(std::accumulate(counts.begin(), counts.end(), int64_t(0))) * width;
  }
  template <class Body>
  void for_bytes(const std::vector<int64_t>& counts, const Body& body) const {
    for (size_t other = 0; other < counts.size(); ++other) {
      for (int64_t i = 0; i < counts[other] * int64_t(width); ++i) body(int(other), i);
    }
  }
};

void exchange(Site& site, Communicator& comm, DType dtype, std::vector<Exchanged>& parts) {
  Stream stream = site.stream("exchange");
  std::vector<ExchangePart> views;
  for (const Exchanged& part : parts) views.push_back(part.part());
  comm.all_to_all(stream, views, dtype, "experts");
  settle(stream, comm);
  for (Exchanged& part : parts) part.check(site);
}

}  // namespace

void exchanges_unequal_slices(Site& site) {
  const auto comm = site.communicator("exchange");
  int salt = 0;
  for (const Memory memory : {Memory::plain, Memory::shared, Memory::mixed}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::u8, DType::i32}) {
      std::vector<Exchanged> parts;
      for (int p = 0; p < 2; ++p) parts.emplace_back(site, memory, dtype, ++salt);
      exchange(site, *comm, dtype, parts);
    }
  }
}

void exchanges_many_parts(Site& site) {
  const auto comm = site.communicator("exchange");
  std::vector<Exchanged> parts;
  for (int p = 0; p < 70; ++p) parts.emplace_back(site, Memory::mixed, DType::u8, 100 + p);
  exchange(site, *comm, DType::u8, parts);
  Stream stream = site.stream("exchange");
  comm->all_to_all(stream, std::span<const ExchangePart>(), DType::u8, "no parts");
  settle(stream, *comm);
}

void counts_unequal_traffic(Site& site) {
  const auto comm = site.communicator("exchange");
  std::vector<Exchanged> parts;
  parts.emplace_back(site, Memory::shared, DType::bf16, 7);
  exchange(site, *comm, DType::bf16, parts);
  int64_t sent = 0, received = 0;
  for (int other = 0; other < site.size(); ++other) {
    if (other == site.rank()) continue;
    sent += parts[0].sent[size_t(other)];
    received += parts[0].received[size_t(other)];
  }
  const int64_t want = all_to_all_cost(site.size(), sent, received, DType::bf16).bytes;
  expect(want == 2 * std::max(sent, received), "the cost is {} bytes", want);
  const int64_t got = comm->traffic().exchanged;
  expect(got == want, "exchanged {} bytes, expected {}", got, want);
}

// At once, at the caller; the communicator still works.
void refuses_wrong_exchanges(Site& site) {
  const auto comm = site.communicator("wrong");
  const size_t n = size_t(site.size()), rank = size_t(site.rank());
  Stream stream = site.stream("wrong");
  Bytes a(site, Memory::shared, n * 64), b(site, Memory::shared, n * 64);
  const std::vector<int64_t> fours(n, 4), few(n - 1, 4);
  std::vector<int64_t> negative = fours, other = fours;
  negative[rank] = -1;
  other[rank] = 3;
  const auto refused = [&](const ExchangePart& part, const char* what) {
    std::string message;
    try {
      comm->all_to_all(stream, {&part, 1}, DType::f32, "u");
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::usage) message = error.what();
    }
    expect(message.find(what) != std::string::npos, "expected '{}', got '{}'", what, message);
  };
  refused({a.data(), b.data(), few, fours}, "not as many counts as there are ranks");
  refused({a.data(), b.data(), negative, negative}, "a negative count");
  refused({a.data(), b.data(), fours, other}, "not what it expects of itself");
  refused({a.data(), nullptr, fours, fours}, "a buffer that is null or not aligned");
  refused({a.data() + 2, b.data(), fours, fours}, "a buffer that is null or not aligned");
  refused({a.data(), a.data() + 4, fours, fours}, "buffers that overlap");
  comm->barrier(stream, "u");
  settle(stream, *comm);
}

}  // namespace zeno::comm::contract
