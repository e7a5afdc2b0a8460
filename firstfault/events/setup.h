// What a run is: program, machine, model, optimizers. Written once at its start; modules may be added later.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace firstfault {

struct ModuleInfo {
  std::string path;             ///< "model.layers.0"
  std::string type;             ///< "Linear", "Tanh", …
  std::int64_t parameters = 0;  ///< elements of its own, without those of modules inside it
};

struct OptimizerInfo {
  std::string type;                                   ///< "Adam"
  std::vector<std::map<std::string, double>> groups;  ///< lr, eps, weight_decay, beta1, momentum …: numbers only
};

struct Setup {
  std::vector<std::string> command;  ///< the program and its arguments
  std::string directory;             ///< where it was started
  std::string git_commit;            ///< of that directory, "" for none
  std::string host;
  std::string started;                          ///< ISO 8601, UTC
  std::map<std::string, std::string> versions;  ///< firstfault, torch, python …
  std::string level;                            ///< gradients, modules or ops
  std::vector<ModuleInfo> modules;
  std::vector<OptimizerInfo> optimizers;
};

}  // namespace firstfault
