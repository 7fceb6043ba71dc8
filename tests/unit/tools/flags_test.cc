#include "flags.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ptqwatch::internal {
namespace flags_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<Invocation> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "ptqwatch");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

std::string Mistake(const std::vector<const char*>& arguments) {
  const auto command = Parse(arguments);
  EXPECT_FALSE(command.ok());
  EXPECT_EQ(command.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(command.status().message());
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  return message;
}

TEST(Flags, ReadsWatch) {
  const auto command = Parse({"watch", "h:1", "--json", "--plain", "--since", "12", "--count", "3",
                              "--timeout", "2.5", "--keep"});
  ASSERT_TRUE(command.ok()) << command.status();
  const auto& flags = std::get<WatchFlags>(*command);
  EXPECT_EQ(flags.target.address.ToString(), "h:1");
  EXPECT_TRUE(flags.json);
  EXPECT_EQ(flags.since, 12);
  EXPECT_EQ(flags.count, 3);
  EXPECT_EQ(flags.timeout_seconds, 2.5);
  EXPECT_TRUE(flags.keep);
}

TEST(Flags, WatchesAllReportsUntilTheRunEndsByDefault) {
  const auto command = Parse({"watch", ":1"});
  ASSERT_TRUE(command.ok()) << command.status();
  const auto& flags = std::get<WatchFlags>(*command);
  EXPECT_EQ(flags.since, 0);
  EXPECT_FALSE(flags.count.has_value());
  EXPECT_FALSE(flags.timeout_seconds.has_value());
  EXPECT_FALSE(flags.json || flags.keep);
}

TEST(Flags, SinceNowMeansNoSequence) {
  const auto command = Parse({"watch", ":1", "--since=now"});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_FALSE(std::get<WatchFlags>(*command).since.has_value());
}

TEST(Flags, TakesTheLastOfSeveral) {
  const auto command =
      Parse({"watch", ":1", "--count", "3", "--since", "now", "--count=4", "--since", "7"});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(std::get<WatchFlags>(*command).count, 4);
  EXPECT_EQ(std::get<WatchFlags>(*command).since, 7);
}

TEST(Flags, ReadsStatusAndSnapshot) {
  const auto status = Parse({"status", "--json", "h"});
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(std::get<StatusFlags>(*status).target.address.port, kDefaultGrpcPort);
  EXPECT_TRUE(std::get<StatusFlags>(*status).json);
  const auto snapshot = Parse({"snapshot", "h", "--wait", "--timeout", "1"});
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_TRUE(std::get<SnapshotFlags>(*snapshot).wait);
  EXPECT_EQ(std::get<SnapshotFlags>(*snapshot).timeout_seconds, 1);
}

TEST(Flags, ReadsReplay) {
  const auto table = Parse({"replay", "runs/7"});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(std::get<ReplayFlags>(*table).journal, "runs/7");
  EXPECT_FALSE(std::get<ReplayFlags>(*table).json);
  const auto json = Parse({"replay", "--json", "-"});
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(std::get<ReplayFlags>(*json).journal, "-");
  EXPECT_TRUE(std::get<ReplayFlags>(*json).json);
  const auto without_floor = Parse({"replay", "-", "--floor-nats", "0"});
  ASSERT_TRUE(without_floor.ok()) << without_floor.status();
  EXPECT_EQ(std::get<ReplayFlags>(*without_floor).options.floor_nats, 0);
  EXPECT_THAT(Mistake({"replay"}), HasSubstr("JOURNAL"));
  EXPECT_THAT(Mistake({"replay", "-", "--floor-nats", "-1"}),
              AllOf(HasSubstr("--floor-nats"), HasSubstr("at least 0")));
  EXPECT_THAT(Mistake({"replay", "-", "--decay-sigmas", "0"}),
              AllOf(HasSubstr("--decay-sigmas"), HasSubstr("positive")));
  EXPECT_THAT(Mistake({"replay", "-", "--plateau-ratio", "0.5"}),
              AllOf(HasSubstr("--plateau-ratio"), HasSubstr("at least 1")));
}

TEST(Flags, ReadsSlice) {
  const auto slice = Parse({"slice", "h:1", "--method", "gptq", "--bits", "3", "--points", "9",
                            "--format", "nvfp4", "--wait", "--timeout", "60"});
  ASSERT_TRUE(slice.ok()) << slice.status();
  const auto& flags = std::get<SliceFlags>(*slice);
  EXPECT_EQ(flags.target.address.ToString(), "h:1");
  EXPECT_EQ(flags.method, "gptq");
  EXPECT_EQ(flags.bits, 3);
  EXPECT_EQ(flags.format, "nvfp4");
  EXPECT_EQ(flags.points, 9);
  EXPECT_TRUE(flags.wait);
  EXPECT_EQ(flags.timeout_seconds, 60);
  EXPECT_EQ(std::get<SliceFlags>(*Parse({"slice", "h", "--method", "nf4", "--bits", "4"})).points,
            21);
}

TEST(Flags, ReadsCooldown) {
  const auto cooldown = Parse({"cooldown", "h:1", "--steps", "3200", "--wait", "--timeout", "60"});
  ASSERT_TRUE(cooldown.ok()) << cooldown.status();
  const auto& flags = std::get<CooldownFlags>(*cooldown);
  EXPECT_EQ(flags.decay_steps, 3200);
  EXPECT_TRUE(flags.wait);
  EXPECT_FALSE(flags.cancel);
  EXPECT_EQ(flags.timeout_seconds, 60);
  EXPECT_TRUE(std::get<CooldownFlags>(*Parse({"cooldown", "h", "--cancel"})).cancel);
  EXPECT_THAT(Mistake({"cooldown", "h", "--steps", "0"}), HasSubstr("--steps"));
  EXPECT_THAT(Mistake({"cooldown", "h", "--cancel", "--wait"}), HasSubstr("--cancel"));
}

TEST(Flags, ReadsCommandsThatControl) {
  const auto pause = Parse({"pause", "h:1"});
  ASSERT_TRUE(pause.ok()) << pause.status();
  EXPECT_EQ(std::get<PauseFlags>(*pause).target.address.ToString(), "h:1");
  const auto resume = Parse({"resume", "h"});
  ASSERT_TRUE(resume.ok()) << resume.status();
  EXPECT_EQ(std::get<ResumeFlags>(*resume).target.address.ToString(), "h:9465");
  const auto every = Parse({"every", "h:1", "500"});
  ASSERT_TRUE(every.ok()) << every.status();
  EXPECT_EQ(std::get<EveryFlags>(*every).steps, 500);
  EXPECT_THAT(Mistake({"every", "h:1"}), HasSubstr("STEPS"));
  EXPECT_THAT(Mistake({"every", "h:1", "0"}), AllOf(HasSubstr("STEPS"), HasSubstr("0")));
  EXPECT_THAT(Mistake({"pause"}), HasSubstr("RUN"));
}

TEST(Flags, NamesTheMistakeOfASlice) {
  EXPECT_THAT(Mistake({"slice", ":1", "--bits", "3"}), HasSubstr("--method"));
  EXPECT_THAT(Mistake({"slice", ":1", "--method", "gptq"}), HasSubstr("--bits"));
  EXPECT_THAT(Mistake({"slice", ":1", "--method", "gptq", "--bits", "no"}),
              AllOf(HasSubstr("--bits"), HasSubstr("no")));
  for (const char* points : {"1", "102", "9.5"}) {
    EXPECT_THAT(Mistake({"slice", ":1", "--method", "gptq", "--bits", "3", "--points", points}),
                AllOf(HasSubstr("--points"), HasSubstr(points), HasSubstr("2"), HasSubstr("101")));
  }
}

TEST(Flags, HelpHasExamplesAndVersionIsOneLine) {
  const auto help = Parse({"--help"});
  ASSERT_TRUE(help.ok()) << help.status();
  EXPECT_THAT(std::get<PrintText>(*help).text,
              AllOf(HasSubstr("watch"), HasSubstr("status"), HasSubstr("snapshot"),
                    HasSubstr("ptqwatch watch :9465")));
  const auto pause = Parse({"pause", "--help"});
  ASSERT_TRUE(pause.ok()) << pause.status();
  EXPECT_THAT(std::get<PrintText>(*pause).text, Not(HasSubstr("ptqwatch watch")));
  const auto watch = Parse({"watch", "--help"});
  ASSERT_TRUE(watch.ok()) << watch.status();
  EXPECT_THAT(std::get<PrintText>(*watch).text,
              AllOf(HasSubstr("--since"), HasSubstr("--count"), HasSubstr("--keep")));
  const auto version = Parse({"--version"});
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_EQ(std::get<PrintText>(*version).text, "ptqwatch 0.1.0\n");
}

TEST(Flags, NamesTheMistake) {
  EXPECT_THAT(Mistake({}), AllOf(HasSubstr("no command"), HasSubstr("ptqwatch --help")));
  EXPECT_THAT(Mistake({"wtach", ":1"}), HasSubstr("wtach"));
  EXPECT_THAT(Mistake({"--bogus"}), HasSubstr("--bogus"));
  EXPECT_THAT(Mistake({"watch"}), HasSubstr("RUN"));
  EXPECT_THAT(Mistake({"watch", ":1", "--bogus"}), HasSubstr("--bogus"));
  EXPECT_THAT(Mistake({"watch", ":1", ":2"}), HasSubstr(":2"));
  EXPECT_THAT(Mistake({"watch", ":0"}), AllOf(HasSubstr("RUN"), HasSubstr("':0'")));
  EXPECT_THAT(Mistake({"status", "h:65536"}), HasSubstr("'h:65536'"));
  EXPECT_THAT(Mistake({"watch", ":1", "--count", "0"}),
              AllOf(HasSubstr("--count"), HasSubstr("0")));
  EXPECT_THAT(Mistake({"watch", ":1", "--count", "-1"}), HasSubstr("--count"));
  EXPECT_THAT(Mistake({"watch", ":1", "--count"}), HasSubstr("--count"));
  EXPECT_THAT(Mistake({"watch", ":1", "--since", "then"}),
              AllOf(HasSubstr("--since"), HasSubstr("then")));
  EXPECT_THAT(Mistake({"watch", ":1", "--since", "9223372036854775808"}), HasSubstr("--since"));
  EXPECT_THAT(Mistake({"watch", ":1", "--timeout", "nan"}),
              AllOf(HasSubstr("--timeout"), HasSubstr("nan")));
  EXPECT_THAT(Mistake({"snapshot", ":1", "--timeout", "-1"}), HasSubstr("--timeout"));
  EXPECT_THAT(Mistake({"status", ":1", "--since", "1"}), HasSubstr("--since"));
}

TEST(Flags, TakesARunDirectoryOrAServer) {
  const auto target = [](std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "ptqwatch");
    return std::get<StatusFlags>(
               *ParseCommandLine(static_cast<int>(arguments.size()), arguments.data()))
        .target;
  };
  EXPECT_EQ(target({"status", "runs/7"}).run_dir, "runs/7");
  EXPECT_EQ(target({"status", "."}).run_dir, ".");
  EXPECT_EQ(target({"status", "trainer-7"}).run_dir, "");
  EXPECT_EQ(target({"status", "trainer-7"}).ToString(), "trainer-7:9465");
  for (const auto& arguments :
       {std::vector<const char*>{"status", "--run", "a", ":1"}, {"status", ":1", "--run", "a"}}) {
    EXPECT_EQ(target(arguments).run, "a");
    EXPECT_EQ(target(arguments).address.port, 1);
  }
}

TEST(Flags, ServesOnLoopbackUnlessTold) {
  const char* arguments[] = {"ptqwatch", "serve", "a", "b", "--grpc", "off", "--allow-control"};
  const ServeFlags flags = std::get<ServeFlags>(*ParseCommandLine(7, arguments));
  const ServeOptions& options = flags.options;
  EXPECT_THAT(flags.run_dirs, ::testing::ElementsAre("a", "b"));
  EXPECT_EQ(options.http, "127.0.0.1:9464");
  EXPECT_EQ(options.grpc, "");
  EXPECT_FALSE(options.allow_remote);
  EXPECT_TRUE(options.allow_control);
}

TEST(Flags, GiveTheFileForPrometheus) {
  const char* arguments[] = {"ptqwatch", "serve", "a", "--targets", "targets/a.json"};
  const ServeFlags flags = std::get<ServeFlags>(*ParseCommandLine(5, arguments));
  EXPECT_EQ(flags.options.targets_file, "targets/a.json");
  EXPECT_FALSE(flags.beside.of_rank);
}

// The program that measures checkpoints parses its own command line.
TEST(Flags, PassesOnWhatFollowsTrajectory) {
  const auto command = Parse({"trajectory", "runs/hf", "--help", "--bogus", "--length", "x"});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_THAT(std::get<TrajectoryFlags>(*command).arguments,
              ::testing::ElementsAre("runs/hf", "--help", "--bogus", "--length", "x"));
}

}  // namespace flags_test
}  // namespace ptqwatch::internal
