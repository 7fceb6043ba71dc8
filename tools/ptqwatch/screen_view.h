#ifndef PTQWATCH_TOOLS_PTQWATCH_SCREEN_VIEW_H_
#define PTQWATCH_TOOLS_PTQWATCH_SCREEN_VIEW_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flags.h"
#include "ptqwatch/execution_context.h"
#include "ptqwatch/run_source.h"
#include "status_text.h"
#include "watch_screen.h"

namespace ptqwatch::internal {

/// Draws a view and reads keys: a FullScreen, or a test's replacement.
struct Display {
  std::function<ScreenSize()> size;
  std::function<void(const std::vector<std::string>& lines)> draw;
  std::function<char()> key;     ///< 0: no key was pressed
  std::function<bool()> closed;  ///< the output is no longer read
};

/// `ptqwatch watch` on the full screen: keeps a WatchState and draws it when it changes. Not
/// thread-safe.
class ScreenView final : public WatchListener {
 public:
  /// Returns the report of this sequence with its layers, if there is one.
  using ReadLayers = std::function<std::optional<AnalyzedReport>(int64_t sequence)>;

  /// `flags` and `clock` must outlive the view.
  ScreenView(const WatchFlags* flags, Clock* clock, TextStyle style, Display display,
             ReadLayers read_layers);

  bool OnReport(const AnalyzedReport& report, int64_t missed) override;
  void OnEvent(const Event& event) override;
  void OnStatus(const RunStatus& status) override;
  void OnNotice(std::string_view text) override;
  bool OnTick(bool connected) override;

  const WatchState& state() const { return state_; }

 private:
  /// Returns false to end.
  bool TakeKeys();
  void ReadNewestLayers();
  void DrawWhenDue();

  const WatchFlags* flags_;
  Clock* clock_;
  const TextStyle style_;
  const Display display_;
  const ReadLayers read_layers_;
  WatchState state_;
  StepRate rate_;
  int64_t reports_ = 0;
  int64_t layers_sequence_ = 0;  ///< last requested
  std::chrono::nanoseconds status_time_{0};
  bool changed_ = true;
  std::optional<std::chrono::nanoseconds> drawn_time_;
  ScreenSize drawn_size_;
};

}  // namespace ptqwatch::internal

#endif  // PTQWATCH_TOOLS_PTQWATCH_SCREEN_VIEW_H_
