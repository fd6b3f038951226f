#ifndef DOWNPOUR_OPERATOR_KUBE_HTTP_TESTING_TLS_SERVER_H_
#define DOWNPOUR_OPERATOR_KUBE_HTTP_TESTING_TLS_SERVER_H_

#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>

// For tests: certificates made on the spot, and who shows them.
namespace downpour::kube {

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(BIO* bio) const { BIO_free(bio); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

struct Certificate {
  Owned<EVP_PKEY> key;
  Owned<X509> x509;

  std::string Pem() const;
  std::string KeyPem() const;
};

// `issuer` nullptr: an authority that signs itself.
Certificate MakeCertificate(const std::string& name, const std::string& alternative, const Certificate* issuer);

// A socket on loopback; `port` is the one it got.
int Listen(int* port);

// Answers each connection's first request with the common name of the client's certificate.
class TlsServer {
 public:
  TlsServer(const Certificate& certificate, const Certificate* client_authority, int max_version = 0);
  ~TlsServer();
  TlsServer(const TlsServer&) = delete;
  TlsServer& operator=(const TlsServer&) = delete;

  // To the connections that come.
  void Show(const Certificate& certificate);
  const std::string& url() const { return url_; }
  // The name that the last client said; "": none.
  std::string sni();

 private:
  Owned<SSL> Accept();
  void Run();

  const Owned<SSL_CTX> context_;
  int listener_;
  std::string url_;
  std::mutex mutex_;
  std::string sni_ = "none";
  std::thread thread_;
};

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_HTTP_TESTING_TLS_SERVER_H_
