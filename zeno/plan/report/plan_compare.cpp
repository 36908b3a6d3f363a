#include "zeno/plan/report/plan_compare.h"

namespace zeno::plan {

size_t Comparison::left_out() const {
  size_t sum = 0;
  for (const Purpose purpose : left_out_by_deepspeed(theirs.stage))
    sum += ours.bytes.at(Tier::device, purpose);
  return sum;
}

std::vector<Comparison> compare_deepspeed(const PlanModel& model, const zero::EngineOptions& options,
                                          const Setting& setting, int node_ranks) {
  const double params = model.params ? *model.params : count_of(model.layers);
  std::vector<Comparison> list;
  for (const DeepSpeedEstimate& theirs :
       deepspeed_estimates(params, double(largest_module(model.layers)), options.mesh.ranks(), node_ranks)) {
    PlanRow ours;
    ours.setting = setting;
    ours.setting.stage = theirs.stage;
    ours.setting.homes = theirs.parameters_cpu  ? Homes::all_host
                         : theirs.optimizer_cpu ? Homes::optimizer_host
                                                : Homes::device;
    ours.bytes = plan_bytes(model, with(options, ours.setting));
    list.push_back({theirs, ours});
  }
  return list;
}

}  // namespace zeno::plan
