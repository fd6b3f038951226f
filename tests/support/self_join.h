#ifndef DOWNPOUR_TESTS_SUPPORT_SELF_JOIN_H_
#define DOWNPOUR_TESTS_SUPPORT_SELF_JOIN_H_

namespace downpour::testing {

// How often a thread of this process waited for its own end. Linking this puts a pthread_join that counts in place of
// the system's, for gRPC too, which otherwise goes on in silence with what it has freed.
int SelfJoins();

}  // namespace downpour::testing

#endif  // DOWNPOUR_TESTS_SUPPORT_SELF_JOIN_H_
