#ifndef DOWNPOUR_OPERATOR_KUBE_HTTP_TLS_H_
#define DOWNPOUR_OPERATOR_KUBE_HTTP_TLS_H_

#include "boost/asio/ssl.hpp"
#include "operator/kube/credentials.h"

namespace downpour::kube {

// At the end of the process things go in the opposite order: the library's threads must end before OpenSSL cleans up,
// or what it keeps for each of them is lost.
void InitialiseOpenSsl();

// The library reads all certificates that the system trusts for each connection, before it asks what to trust: 30 ms
// of a core, for nothing, as nearly all clusters have a certificate of their own. Remembers where they are and hides
// them from it, in the environment.
void HideSystemCertificates();

// Trusts the authority of the credentials or, if there is none, the system's; shows the client's certificate. Throws
// what Boost throws: the library hands that to the request.
void ConfigureTls(boost::asio::ssl::context& context, const Credentials& credentials);

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_HTTP_TLS_H_
