#ifndef DOWNPOUR_PROTO_MEMBER_CHANNEL_H_
#define DOWNPOUR_PROTO_MEMBER_CHANNEL_H_

#include <memory>
#include <string>

#include "grpcpp/grpcpp.h"

namespace downpour {

// Of a lasting connection: a ping after so long without a word, and so long for its answer. The server's side has to
// allow for the first.
inline constexpr int kKeepaliveTimeMs = 10'000;
inline constexpr int kKeepaliveTimeoutMs = 5'000;

struct MemberChannelOptions {
  int max_message_bytes = 4 << 20;  // in either direction
  // For whoever talks all the time: notices that a peer is gone, connects again within seconds, and follows a name that
  // leads elsewhere. Otherwise for a question now and then, which is repeated anyway: without what costs time for each
  // channel.
  bool lasting = false;
};

// The one way to a member of a job (coordinator, ps), for whoever talks to one; the lint finds others. Members are
// reached directly: a proxy of the environment (http_proxy and its like) never comes between. A connection of its own:
// a question does not wait behind what another channel to the same process does. Neither encrypted nor authenticated.
// Connects when it is first used, and never blocks.
std::shared_ptr<grpc::Channel> MakeMemberChannel(const std::string& address, const MemberChannelOptions& options = {});

}  // namespace downpour

#endif  // DOWNPOUR_PROTO_MEMBER_CHANNEL_H_
