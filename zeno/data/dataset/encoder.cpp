#include "zeno/data/dataset/encoder.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "zeno/base/error.h"
#include "zeno/data/chat/chat_date.h"
#include "zeno/data/chat/chat_template.h"
#include "zeno/data/chat/special_guard.h"
#include "zeno/data/reserve_by_share.h"
#include "zeno/data/tokenizer.h"

namespace zeno::data {
namespace {

// Records are their authors' own layout: special tokens they write are meant, and bos is added as for any
// text.
constexpr EncodeOptions kWithSpecials{.add_special = true, .parse_special = true};

// A byte costs 5 to 9 bytes while its tokens are made, and more before that where it is part of a chat. No
// context holds as much.
constexpr size_t kMaxTextBytes = size_t(32) << 20, kMaxSpannedBytes = kMaxTextBytes / 2;

void check_length(const std::string& text, size_t most) {
  require(text.size() <= most, ErrorKind::data,
          "got a text of {} bytes, expected at most {}; split the record", text.size(), most);
}

// Which tokens hold a byte of one of some spans. Tokens and spans come in order.
class Touched {
 public:
  explicit Touched(std::span<const TextSpan> spans) : spans_(spans) {}
  bool operator()(TextSpan token) {
    while (next_ < spans_.size() && spans_[next_].end <= token.begin) ++next_;
    if (next_ == spans_.size()) return false;
    // A token without bytes of its own belongs to where it stands.
    return spans_[next_].begin < std::max(token.end, token.begin + 1);
  }

 private:
  std::span<const TextSpan> spans_;
  size_t next_ = 0;
};

// Adds a token of a text of `bytes` bytes.
void add(Sample& sample, int32_t id, bool learned, size_t end, size_t bytes) {
  if (sample.ids.size() == sample.ids.capacity()) reserve_by_share(sample.ids, end, bytes);
  if (sample.learned.size() == sample.learned.capacity()) reserve_by_share(sample.learned, end, bytes);
  sample.ids.push_back(id);
  sample.learned.push_back(learned);
}

// Whole texts.
void learn_all(Sample& sample) {
  sample.learned.reserve(sample.ids.size() + 1);  // eos may follow
  sample.learned.assign(sample.ids.size(), 1);
}

}  // namespace

struct SampleEncoder::Parts {
  explicit Parts(const DatasetSpec& from) : spec(from) {
    template_variables(spec.template_extra);  // is refused before there are chats
    chat_options.extra = spec.template_extra;
    if (!spec.chat_date.empty()) chat_options.now = parse_chat_date(spec.chat_date);
    if (Tokenizer::exists(spec.model)) tokenizer = Tokenizer::open(spec.model);
    if (tokenizer) guard = SpecialGuard(*tokenizer);
    has_template = !spec.chat_template.empty() || ChatTemplate::in_folder(spec.model);
    // A template that cannot be read matters only where there are chats.
    if (has_template) {
      try {
        chat_template = ChatTemplate::open(spec.model, spec.chat_template);
      } catch (const Error& error) {
        template_error = error.what();
      }
    }
  }

  const Tokenizer& need_tokenizer() const {
    require(tokenizer.has_value(), ErrorKind::usage,
            "[data] {}: got no tokenizer, expected tokenizer.json, or vocab.json with merges.txt; copy it "
            "from the model's origin",
            spec.model.string());
    return *tokenizer;
  }

  RenderedChat render(const ChatRecord& chat) const {
    require(template_error.empty(), ErrorKind::usage, "{}", template_error);
    require(has_template, ErrorKind::usage,
            "[data] {}: got chats but no chat template, expected one in the folder; give --chat-template "
            "chatml, another preset or a .jinja file",
            spec.model.string());
    // Who speaks is not asked where all is trained on.
    if (spec.loss_on == LossOn::all) {
      return chat_template->render_prompt(chat.messages, chat.tools, chat_options);
    }
    return chat_template->render(chat.messages, chat.tools, chat_options);
  }

  // A text may begin with the bos that the post-processor adds as well.
  void remove_second_bos(Sample& sample) const {
    const auto bos = tokenizer->bos();
    if (!bos || sample.ids.size() < 2 || sample.ids[0] != *bos || sample.ids[1] != *bos) return;
    sample.ids.erase(sample.ids.begin());
    sample.learned.erase(sample.learned.begin());
  }

  // The end is trained, whether the author or Zeno wrote the eos.
  void end_with_eos(Sample& sample) const {
    const auto eos = tokenizer->eos();
    if (!eos) return;
    if (sample.ids.empty() || sample.ids.back() != *eos) {
      sample.ids.push_back(*eos);
      sample.learned.push_back(1);
    }
    sample.learned.back() = 1;
  }

  void check_loss_on_text() const {
    require(spec.loss_on == LossOn::automatic || spec.loss_on == LossOn::all, ErrorKind::usage,
            "[data] --loss-on: got a part of samples, expected all: plain text has no completions or turns");
  }

  DatasetSpec spec;
  std::optional<Tokenizer> tokenizer;
  SpecialGuard guard;
  ChatOptions chat_options;
  bool has_template = false;
  std::optional<ChatTemplate> chat_template;
  std::string template_error;  // why there is none, though there should be
};

SampleEncoder::SampleEncoder(const DatasetSpec& spec) : parts_(std::make_unique<const Parts>(spec)) {}
SampleEncoder::~SampleEncoder() = default;

bool has_target(const Sample& sample) {
  return sample.ids.size() >= 2 &&
         std::find(sample.learned.begin() + 1, sample.learned.end(), uint8_t(1)) != sample.learned.end();
}

void SampleEncoder::check_ids(const Sample& sample) const {
  const int64_t vocab = parts_->spec.vocab_size;
  const auto bad =
      std::ranges::find_if(sample.ids, [&](int32_t id) { return id < 0 || int64_t(id) >= vocab; });
  require(bad == sample.ids.end(), ErrorKind::data,
          "token {} has id {}, expected below the model's vocabulary size {}", bad - sample.ids.begin(),
          bad == sample.ids.end() ? 0 : *bad, vocab);
}

Sample SampleEncoder::encode(Record&& record, std::vector<std::string>& remarks) const {
  Sample sample = std::visit(
      [&](auto&& shape) {
        using T = std::remove_cvref_t<decltype(shape)>;
        if constexpr (std::is_same_v<T, ChatRecord>) return encode_chat(std::move(shape), remarks);
        if constexpr (std::is_same_v<T, PromptRecord>) return encode_prompt(std::move(shape));
        if constexpr (std::is_same_v<T, TextRecord>) return encode_whole(shape.text);
        if constexpr (std::is_same_v<T, TokenRecord>) return encode_tokens(std::move(shape));
        if constexpr (std::is_same_v<T, AlpacaRecord>) {
          return parts_->has_template ? encode_chat(chat_of(std::move(shape)), remarks)
                                      : encode_prompt(plain_layout_of(std::move(shape)));
        }
      },
      std::move(record));
  check_ids(sample);
  return sample;
}

Sample SampleEncoder::encode_chat(ChatRecord&& chat, std::vector<std::string>& remarks) const {
  const RenderedChat rendered = parts_->render(chat);
  check_length(rendered.text, kMaxSpannedBytes);
  const std::vector<TextSpan> spans = trained_spans(rendered.assistant, chat);
  chat = {};  // its words are in the rendered text
  // However the tokenizer joined bytes: no token with a byte of another author.
  Touched trained(spans), foreign(rendered.others);
  const bool all = parts_->spec.loss_on == LossOn::all;
  Sample sample;
  for_each_token_in_pieces(parts_->need_tokenizer(), rendered.text, parts_->guard.cuts(rendered),
                           [&](int32_t id, TextSpan span) {
                             const bool of_model = trained(span), of_others = foreign(span);
                             add(sample, id, all || (of_model && !of_others), span.end, rendered.text.size());
                           });
  remarks.insert(remarks.end(), rendered.remarks.begin(), rendered.remarks.end());
  return sample;
}

// Of those of the assistant, by the flags of the messages and by --loss-on.
std::vector<TextSpan> SampleEncoder::trained_spans(const std::vector<AssistantSpan>& spans,
                                                   const ChatRecord& chat) const {
  std::vector<uint8_t> flags(chat.messages.size(), 0);
  size_t turn = 0;
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    if (is_assistant(chat.messages[i])) flags[i] = chat.train.at(turn++);
  }
  std::vector<TextSpan> out;
  for (const AssistantSpan& span : spans) {
    if (parts_->spec.loss_on == LossOn::last && span.message != spans.back().message) continue;
    if (span.message == kNoMessage || flags[span.message]) out.push_back({span.begin, span.end});
  }
  return out;
}

Sample SampleEncoder::encode_prompt(PromptRecord&& record) const {
  std::string text = std::move(record.prompt);
  const size_t prompt = text.size();
  text += std::exchange(record.completion, {});
  check_length(text, kMaxSpannedBytes);
  const TextSpan completion{prompt, text.size()};
  Touched trained(std::span(&completion, 1));
  const bool all = parts_->spec.loss_on == LossOn::all;
  Sample sample;
  parts_->need_tokenizer().for_each_token(text, kWithSpecials, [&](int32_t id, TextSpan span) {
    const bool learned = trained(span);
    add(sample, id, all || learned, span.end, text.size());
  });
  parts_->remove_second_bos(sample);
  parts_->end_with_eos(sample);
  return sample;
}

Sample SampleEncoder::encode_whole(const std::string& text) const {
  parts_->check_loss_on_text();
  check_length(text, kMaxTextBytes);
  Sample sample{.ids = parts_->need_tokenizer().encode(text, kWithSpecials), .learned = {}};
  learn_all(sample);
  parts_->remove_second_bos(sample);
  parts_->end_with_eos(sample);
  return sample;
}

Sample SampleEncoder::encode_text(std::string_view piece, bool first, bool last) const {
  parts_->check_loss_on_text();
  const Tokenizer& tokenizer = parts_->need_tokenizer();
  Sample sample{.ids = tokenizer.encode(piece, {.add_special = first}), .learned = {}};
  learn_all(sample);
  if (last) {
    parts_->end_with_eos(sample);
  } else if (first && tokenizer.eos() && !sample.ids.empty() && sample.ids.back() == *tokenizer.eos()) {
    sample.ids.pop_back();  // of the post-processor: the text continues
    sample.learned.pop_back();
  }
  check_ids(sample);
  return sample;
}

Sample SampleEncoder::encode_tokens(TokenRecord&& record) const {
  const LossOn loss_on = parts_->spec.loss_on;
  const bool known = record.marked || loss_on == LossOn::automatic || loss_on == LossOn::all;
  require(known, ErrorKind::data, "tokens without 'labels' or 'mask' have no completion to train on");
  Sample sample = std::move(record.sample);
  if (loss_on == LossOn::all) sample.learned.assign(sample.ids.size(), 1);
  return sample;
}

std::string SampleEncoder::layout_of(DataFormat format) const {
  const bool chat = format == DataFormat::messages || format == DataFormat::sharegpt;
  const bool alpaca = format == DataFormat::alpaca;
  if (alpaca && !parts_->has_template) {
    return "alpaca records formatted with '### Instruction:' and '### Response:' (no chat template)";
  }
  if (!chat && !alpaca) return "";
  const std::string& choice = parts_->spec.chat_template;
  return fmt::format("chats formatted with {}",
                     choice.empty() ? "the chat template of the model folder" : "chat template " + choice);
}

}  // namespace zeno::data
