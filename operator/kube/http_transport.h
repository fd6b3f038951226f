#ifndef DOWNPOUR_OPERATOR_KUBE_HTTP_TRANSPORT_H_
#define DOWNPOUR_OPERATOR_KUBE_HTTP_TRANSPORT_H_

#include <memory>

#include "operator/kube/credentials.h"
#include "operator/kube/transport.h"

namespace downpour::kube {

// The threads that all HttpTransports of the process share; call it first in main(), once.
void InitialiseHttpThreads(int threads);

// Over cpprestsdk, the one place where it is used. New connections use the newest credentials; after 401 they are read
// again and the request is tried once more. After errors of connections the client underneath is made anew.
std::unique_ptr<Transport> MakeHttpTransport(std::shared_ptr<CredentialSource> credentials);

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_HTTP_TRANSPORT_H_
