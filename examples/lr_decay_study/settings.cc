#include "settings.h"

#include <cmath>

namespace ptqwatch::examples {

int64_t StudySettings::DecaySteps(double part) const {
  return std::llround(part * static_cast<double>(run));
}

StudySettings SettingsOf(const std::string& scale) {
  StudySettings settings;
  settings.scale = scale;
  settings.rates = {1e-3, 3e-3, 1e-2, 2e-2};
  settings.decays = {0.03, 0.1, 0.3};
  settings.fractions = {0.05, 0.1, 0.2, 0.4};
  settings.budgets = {4000, 8000, 16000, 32000};
  settings.cosines = {4000, 8000, 16000};
  // The runs of the other scales, as parts of those of the full one.
  const auto shrink = [&settings](int64_t by) {
    for (int64_t* steps : {&settings.every, &settings.cooldown, &settings.run,
                           &settings.average_every, &settings.leg}) {
      *steps /= by;
    }
    for (auto* all : {&settings.budgets, &settings.cosines}) {
      for (int64_t& steps : *all) steps /= by;
    }
    settings.seeds = 1;
  };
  if (scale == "quick") {
    shrink(5);
    settings.warmup = 100;
    settings.every = 160;
    settings.cooldown = 320;
    settings.average_every = 640;
    settings.window = 5;
    settings.rates = {3e-3, 1e-2, 2e-2};
    settings.decays = {0.1, 0.3};
    settings.cosines = {settings.run};
    settings.soup = 2;
  } else if (scale == "tiny") {
    shrink(200);
    settings.warmup = 2;
    settings.every = 4;
    settings.cooldown = 12;
    settings.average_every = 16;
    settings.width = 16;
    settings.layers = 1;
    settings.window = 2;
    settings.probe_sequences = 64;
    settings.calibration_sequences = 32;
    settings.rates = {3e-3, 1e-2};
    settings.decays = {0.1, 0.3};
    settings.cosines = {80};
    settings.budgets = {40, 160};
  }
  return settings;
}

nlohmann::ordered_json ToJson(const StudySettings& s) {
  return {{"scale", s.scale},
          {"seeds", s.seeds},
          {"text_sha256", s.text_sha256},
          {"width", s.width},
          {"layers", s.layers},
          {"length", s.length},
          {"batch", s.batch},
          {"weight_decay", s.weight_decay},
          {"peak", s.peak},
          {"group_size", s.group_size},
          {"probe_sequences", s.probe_sequences},
          {"calibration_sequences", s.calibration_sequences},
          {"every", s.every},
          {"warmup", s.warmup},
          {"leg", s.leg},
          {"budgets", s.budgets},
          {"cooldown", s.cooldown},
          {"run", s.run},
          {"rates", s.rates},
          {"decays", s.decays},
          {"fractions", s.fractions},
          {"fraction", s.fraction},
          {"cosines", s.cosines},
          {"window", s.window},
          {"average_every", s.average_every},
          {"soup", s.soup}};
}

std::vector<std::string> Differences(const nlohmann::ordered_json& kept,
                                     const nlohmann::ordered_json& asked) {
  std::vector<std::string> differences;
  const auto text = [](const nlohmann::ordered_json& object, const std::string& name) {
    return object.contains(name) ? object.at(name).dump() : std::string("absent");
  };
  const auto compare = [&](const std::string& name) {
    if (text(kept, name) == text(asked, name)) return;
    differences.push_back(name + " is " + text(kept, name) + ", not " + text(asked, name));
  };
  for (const auto& [name, value] : kept.items()) compare(name);
  for (const auto& [name, value] : asked.items()) {
    if (!kept.contains(name)) compare(name);
  }
  return differences;
}

}  // namespace ptqwatch::examples
