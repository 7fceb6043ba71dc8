// A subject serves one monitor or one offline call, whichever opens it first.
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "ptqwatch/monitor.h"
#include "ptqwatch/offline/loss_curvature.h"
#include "ptqwatch/offline/measure_slice.h"
#include "ptqwatch/offline/quantize_model.h"
#include "support/tiny_trainer.h"

namespace ptqwatch {
namespace opened_subject_test {

using ::testing::HasSubstr;
using testing::TinyTrainer;

TEST(OpenedSubject, IsRefusedByTheMonitorAndByEveryOfflineFunction) {
  const TinyTrainer trainer;
  const std::map<std::string, std::function<absl::Status(std::unique_ptr<Subject>)>> doors = {
      {"Monitor::Create",
       [](std::unique_ptr<Subject> subject) {
         return (*Monitor::Create(std::move(subject)))->creation_status();
       }},
      {"QuantizeModel",
       [](std::unique_ptr<Subject> subject) { return QuantizeModel(*subject).status(); }},
      {"MeasureLossSlice",
       [](std::unique_ptr<Subject> subject) {
         return MeasureLossSlice(*subject, {}, {}).status();
       }},
      {"LossCurvature::Create",
       [](std::unique_ptr<Subject> subject) { return LossCurvature::Create(*subject).status(); }},
  };
  for (const auto& [name, open] : doors) {
    std::unique_ptr<Subject> subject = trainer.MakeSubject();
    ASSERT_TRUE(QuantizeModel(*subject).ok());
    const absl::Status status = open(std::move(subject));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the subject was opened before")) << name;
  }
}

TEST(OpenedSubject, IsRefusedAfterEachOfflineFunction) {
  const TinyTrainer trainer;
  const auto refused = [](Subject& subject) {
    const absl::Status status = QuantizeModel(subject).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("the subject was opened before"));
  };
  auto subject = trainer.MakeSubject();
  EXPECT_TRUE(LossCurvature::Create(*subject).ok());
  refused(*subject);
  subject = trainer.MakeSubject();
  EXPECT_FALSE(MeasureLossSlice(*subject, {}, {}).ok());  // no plane, but the replica was built
  refused(*subject);
}

}  // namespace opened_subject_test
}  // namespace ptqwatch
