#include "failing_world.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "contract_support.h"

namespace zeno::comm::contract {

void fail_in(Site& site, std::string_view way) {
  const auto comm = site.communicator("reduce");
  const bool culprit = site.rank() == site.size() - 1;
  const int64_t count = way == "reading" || way == "kill-inside" ? 600'000 : 1000;
  Bytes send = filled_periodic(site, Memory::shared, site.size() * count, DType::f32, 1);
  Bytes recv(site, Memory::shared, size_t(site.size() * count) * 4);
  Stream stream = site.stream("reduce");
  Part part{send.data(), recv.data(), count};
  for (int op = 0; op < 50; ++op) {
    if (op == 2 && culprit) {
      // The others come to operation 3 first: of operation 2, what this rank sent may still be with its own
      // threads, and would be lost with them.
      if (way == "throw" || way == "kill") std::this_thread::sleep_for(std::chrono::milliseconds(300));
      if (way == "throw" || way == "reading") fail(ErrorKind::data, "row 7 of train.jsonl is broken");
      if (way == "kill") raise(SIGKILL);
      if (way == "stall") std::this_thread::sleep_for(std::chrono::milliseconds(900));
      if (way == "mismatch-op") comm->all_gather(stream, {&part, 1}, DType::f32, "blocks.2");
      if (way == "mismatch-count") part.count -= 1;
    }
    const bool other_unit = op == 2 && culprit && way == "mismatch-unit";
    const std::string unit = other_unit ? "head" : fmt::format("blocks.{}", op);
    comm->reduce_scatter(stream, {&part, 1}, DType::f32, DType::f32, false, unit);
    if (op == 2 && culprit && way == "kill-inside") {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      raise(SIGKILL);
    }
    if (op == 2 && way == "mismatch-exchange") {
      std::vector<int64_t> sent(size_t(site.size()), 7);
      const std::vector<int64_t> received = sent;
      if (culprit) sent[0] = 8;
      const ExchangePart exchange{send.data(), recv.data(), sent, received};
      comm->all_to_all(stream, {&exchange, 1}, DType::f32, "experts");
    }
    if (way != "reading") settle(stream, *comm);
  }
  settle(stream, *comm);
}

}  // namespace zeno::comm::contract
