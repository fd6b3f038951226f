#ifndef DOWNPOUR_OPERATOR_KUBE_HTTP_TRANSPORT_H_
#define DOWNPOUR_OPERATOR_KUBE_HTTP_TRANSPORT_H_

#include <memory>

#include "absl/status/status.h"
#include "operator/kube/credentials.h"
#include "operator/kube/transport.h"

namespace downpour::kube {

// Prepares the process for HttpTransports: the threads that they share, and the certificates that the system trusts,
// which are read from then on only where credentials name none. It changes SSL_CERT_FILE and SSL_CERT_DIR: call it once
// in main(), before there are other threads. kResourceExhausted: the system gave it no threads.
absl::Status InitialiseHttp(int threads);

// Over cpprestsdk, which is used here and in http/ alone. New connections use the newest credentials; after 401 they
// are read again and the request is tried once more. After errors of connections the client underneath is made anew.
std::unique_ptr<Transport> MakeHttpTransport(std::shared_ptr<CredentialSource> credentials);

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_HTTP_TRANSPORT_H_
