#include "launcher/head/start_failure.h"

#include <gtest/gtest.h>

namespace aiacc::launcher {
namespace {

StartAttempt by_ssh(const std::string& host, int code, const std::string& errors) {
  StartAttempt attempt;
  attempt.host = host;
  attempt.command = {"ssh", host, "aiaccrun"};
  attempt.ssh = true;
  attempt.ended = io::ExitStatus{code, 0};
  attempt.errors = errors;
  return attempt;
}

TEST(StartFailure, WhatSshSaysIsUnderstood) {
  const std::vector<std::pair<const char*, MessageId>> cases = {
      {"ssh: Could not resolve hostname b: Name or service not known", MessageId::kSshResolve},
      {"ssh: connect to host b port 22: Connection refused", MessageId::kSshRefused},
      {"ssh: connect to host b port 22: No route to host", MessageId::kSshUnreachable},
      {"ssh: connect to host b port 22: Connection timed out", MessageId::kSshUnreachable},
      {"ann@b: Permission denied (publickey,password).", MessageId::kSshAuth},
      {"No ED25519 host key is known for b and you have requested strict checking.\nHost key verification failed.",
       MessageId::kSshHostKey},
      {"@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", MessageId::kSshHostKey},
      {"kex_exchange_identification: Connection closed by remote host", MessageId::kSshDropped},
      {"Connection reset by 10.0.0.2 port 22", MessageId::kSshDropped},
      {"something new", MessageId::kStart},
  };
  for (const auto& [errors, id] : cases) {
    const StartCause cause = explain(by_ssh("b", 255, errors));
    EXPECT_EQ(cause.id, id) << errors;
    EXPECT_NE(cause.what, "");
    EXPECT_EQ(cause.cure.find("{}"), std::string::npos);
  }
  EXPECT_NE(explain(by_ssh("b", 255, "REMOTE HOST IDENTIFICATION HAS CHANGED")).cure.find("ssh-keygen -R b"),
            std::string::npos);
}

TEST(StartFailure, OtherEnds) {
  EXPECT_EQ(explain(by_ssh("b", 127, "sh: 1: aiaccrun: not found")).id, MessageId::kRemoteMissing);
  EXPECT_EQ(explain(by_ssh("b", 126, "")).id, MessageId::kRemoteMissing);
  EXPECT_NE(explain(by_ssh("b", 0, "")).what.find("exited with status 0 before an agent answered"), std::string::npos);
  StartAttempt attempt = by_ssh("b", 0, "");
  attempt.ended = io::ExitStatus{0, 9};
  EXPECT_NE(explain(attempt).what.find("signal 9"), std::string::npos);
  attempt.ended_by_us = true;
  EXPECT_EQ(explain(attempt).what, "ssh closed its output before an agent answered") << "the signal was ours";
  EXPECT_EQ(report({attempt})[0].evidence[1], "  it was still running, and was ended");
  attempt.not_run = "cannot start 'ssh': there is no such program in PATH";
  attempt.not_found = true;
  EXPECT_EQ(explain(attempt).id, MessageId::kSshMissing);
  attempt.ssh = false;
  EXPECT_EQ(explain(attempt).id, MessageId::kStart);
  attempt.limit = true;
  EXPECT_EQ(explain(attempt).id, MessageId::kLimit);
  EXPECT_EQ(explain(attempt).cure, "") << "the sentence about a limit says what to do";
}

TEST(StartFailure, HostsWithOneCauseShareOneReport) {
  const auto reports = report({by_ssh("a", 255, "ssh: connect to host a port 22: Connection refused"),
                               by_ssh("b", 255, "ann@b: Permission denied (publickey)."),
                               by_ssh("c", 255, "ann@c: Permission denied (publickey).")});
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].id, MessageId::kSshAuth);
  EXPECT_TRUE(reports[0].sentence.starts_with("no agent on hosts b and c: ssh may not log in")) << reports[0].sentence;
  EXPECT_EQ(reports[0].evidence, (std::vector<std::string>{"  command: ssh b aiaccrun", "  exit code 255",
                                                           "  stderr: ann@b: Permission denied (publickey)."}));
  EXPECT_TRUE(reports[1].sentence.starts_with("no agent on host a: "));
}

TEST(StartFailure, AllThatWasTriedIsShown) {
  StartAttempt attempt = by_ssh("b", 127, "sh: 1: aiaccrun: not found");
  attempt.earlier.push_back(by_ssh("b", 127, "sh: 1: /opt/bin/aiaccrun: not found"));
  attempt.earlier[0].command.back() = "/opt/bin/aiaccrun";
  EXPECT_EQ(report({attempt})[0].evidence,
            (std::vector<std::string>{"  command: ssh b /opt/bin/aiaccrun", "  exit code 127",
                                      "  stderr: sh: 1: /opt/bin/aiaccrun: not found", "  command: ssh b aiaccrun",
                                      "  exit code 127", "  stderr: sh: 1: aiaccrun: not found"}));
}

TEST(StartFailure, WhatAnUnauthenticatedPeerPrintsIsHarmless) {
  EXPECT_EQ(last_lines("one\ntwo\x1b[2Jx\r\n\n \nthree", 2), (std::vector<std::string>{"two[2Jx", "three"}));
  EXPECT_EQ(last_lines("\x9b"
                       "2J\xc2\x9b\x7f gr\xc3\xbc\xc3\x9f",
                       1),
            (std::vector<std::string>{"2J gr\xc3\xbc\xc3\x9f"}));
  EXPECT_TRUE(last_lines("\n\n", 3).empty());
}

TEST(StartFailure, ManyHostsAreCounted) {
  EXPECT_EQ(name_hosts({"a"}), "a");
  EXPECT_EQ(name_hosts({"a", "b", "c"}), "a, b and c");
  EXPECT_EQ(name_hosts(std::vector<std::string>(20, "x")), "x, x, x, x, x, x, x, x and 12 more");
}

}  // namespace
}  // namespace aiacc::launcher
