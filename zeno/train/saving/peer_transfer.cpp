#include "zeno/train/saving/peer_transfer.h"

#include <algorithm>
#include <exception>
#include <optional>

#include "zeno/base/error.h"

namespace zeno::train {
namespace {

constexpr int64_t kPiece = int64_t(4) << 20;
constexpr std::string_view kUnit = "peer snapshot";

}  // namespace

PeerTransfer::PeerTransfer(comm::World& world)
    : outgoing_(size_t(kPiece)),
      incoming_(size_t(kPiece)),
      comm_(world.communicator(kUnit)),
      send_({.device = {}, .name = "peer send", .rank = world.rank()}),
      receive_({.device = {}, .name = "peer receive", .rank = world.rank()}) {}

void PeerTransfer::pass(int to, const void* out, int64_t out_bytes, int from, void* in, int64_t in_bytes) {
  if (to >= 0 && out_bytes > 0)
    comm_->send(send_, static_cast<const std::byte*>(out), out_bytes, DType::u8, to, kUnit);
  if (from >= 0 && in_bytes > 0)
    comm_->recv(receive_, static_cast<std::byte*>(in), in_bytes, DType::u8, from, kUnit);
  receive_.synchronize();
  send_.synchronize();
}

void PeerTransfer::move(const End& out, const End& in) {
  std::exception_ptr problem;  // an error of this rank's files; the other side still gets its bytes
  const auto attempt = [&](const auto& action) {
    if (problem) return;
    try {
      action();
    } catch (...) {
      problem = std::current_exception();
    }
  };
  std::optional<File> from;
  std::optional<ReplacingFile> to;
  int64_t sending = 0, receiving = 0;
  attempt([&] {
    if (out.rank < 0) return;
    from.emplace(File::open(out.file));
    sending = int64_t(from->size());
  });
  pass(out.rank, &sending, sizeof(sending), in.rank, &receiving, sizeof(receiving));
  attempt([&] {
    if (in.rank >= 0) to.emplace(in.file);
  });
  for (int64_t at = 0; at < std::max(sending, receiving); at += kPiece) {
    const int64_t leaves = std::clamp<int64_t>(sending - at, 0, kPiece);
    const int64_t comes = std::clamp<int64_t>(receiving - at, 0, kPiece);
    if (leaves > 0) attempt([&] { from->read_at(outgoing_.data(), size_t(leaves), uint64_t(at)); });
    pass(out.rank, outgoing_.data(), leaves, in.rank, incoming_.data(), comes);
    if (comes > 0) attempt([&] { to->file().write_at(incoming_.data(), size_t(comes), uint64_t(at)); });
  }
  const int64_t fine = problem == nullptr;
  int64_t theirs = 1;
  pass(out.rank, &fine, sizeof(fine), in.rank, &theirs, sizeof(theirs));
  attempt([&] {
    require(theirs != 0, ErrorKind::io, "[peer snapshot] rank {} could not send {}", in.rank,
            in.file.filename().string());
    if (to) to->commit();
  });
  if (problem) std::rethrow_exception(problem);
}

std::vector<std::string> PeerTransfer::gather(const std::string& mine) {
  const int64_t size = int64_t(mine.size());
  std::vector<int64_t> sizes(size_t(comm_->size()));
  const comm::Part lengths{reinterpret_cast<const std::byte*>(&size),
                           reinterpret_cast<std::byte*>(sizes.data()), 1};
  comm_->all_gather(send_, std::span(&lengths, 1), DType::i64, kUnit);
  send_.synchronize();
  const auto longest = size_t(*std::ranges::max_element(sizes));
  std::vector<std::byte> padded(longest), all(longest * sizes.size());
  std::ranges::copy(std::as_bytes(std::span(mine)), padded.begin());
  const comm::Part texts{padded.data(), all.data(), int64_t(longest)};
  comm_->all_gather(send_, std::span(&texts, 1), DType::u8, kUnit);
  send_.synchronize();
  std::vector<std::string> result;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    const char* begin = reinterpret_cast<const char*>(all.data()) + rank * longest;
    result.emplace_back(begin, size_t(sizes[rank]));
  }
  return result;
}

}  // namespace zeno::train
