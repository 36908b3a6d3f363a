// The subcommands of zeno. Each adds itself, with its flags, to the application; its callback does the work
// and throws zeno::Error for main to report.
#pragma once

namespace CLI {
class App;
}

namespace zeno::cli {

void add_train(CLI::App& app);
void add_eval(CLI::App& app);
void add_plan(CLI::App& app);
void add_init(CLI::App& app);
void add_inspect(CLI::App& app);
void add_data(CLI::App& app);
void add_demo(CLI::App& app);
void add_generate(CLI::App& app);
void add_export(CLI::App& app);
void add_doctor(CLI::App& app);

}  // namespace zeno::cli
