// The instruction data of `zeno demo`: short questions of a few kinds, each asked in several ways, and a
// split that holds some ways of asking back. A held-out question is never trained on, though its answer is,
// in another wording: answering it takes more than remembering lines. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace zeno::cli {

struct DemoQuestion {
  std::string question, answer;
};

struct DemoQuestions {
  std::vector<DemoQuestion> train, held_out;
};

DemoQuestions demo_questions();

// One line of JSONL in `messages` form for each question.
std::string to_jsonl(const std::vector<DemoQuestion>& questions);

}  // namespace zeno::cli
