#include "operator/kube/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace downpour::kube {
namespace {

// Where the certificates are that the system trusts, or that the user says it should.
struct SystemCertificates {
  std::string file = Find(X509_get_default_cert_file_env(), X509_get_default_cert_file());
  std::string directory = Find(X509_get_default_cert_dir_env(), X509_get_default_cert_dir());

  static const SystemCertificates& Get() {
    static const SystemCertificates found;
    return found;
  }

 private:
  static std::string Find(const char* variable, const char* usual) {
    const char* const value = std::getenv(variable);
    return value != nullptr ? value : usual;
  }
};

}  // namespace

void InitialiseOpenSsl() { OPENSSL_init_ssl(0, nullptr); }

void HideSystemCertificates() {
  SystemCertificates::Get();
  setenv(X509_get_default_cert_file_env(), "/dev/null", /*overwrite=*/1);
  setenv(X509_get_default_cert_dir_env(), "/dev/null", /*overwrite=*/1);
}

void ConfigureTls(boost::asio::ssl::context& context, const Credentials& credentials) {
  SSL_CTX* const native = context.native_handle();
  if (SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION) != 1) throw std::runtime_error("TLS 1.2 is not available");
  // Without one OpenSSL asks the terminal.
  context.set_password_callback([](std::size_t, boost::asio::ssl::context::password_purpose) { return std::string(); });
  if (!credentials.certificate_authority.empty()) {
    // In place of the system's, which the library has put there.
    SSL_CTX_set_cert_store(native, X509_STORE_new());
    context.add_certificate_authority(boost::asio::buffer(credentials.certificate_authority));
    // As other clients of Kubernetes do: what is given is trusted, be it an intermediate certificate.
    X509_STORE_set_flags(SSL_CTX_get_cert_store(native), X509_V_FLAG_PARTIAL_CHAIN);
  } else {
    // HideSystemCertificates keeps the library from it. Where there is nothing, nobody is trusted, which the handshake
    // says.
    X509_STORE_load_file(SSL_CTX_get_cert_store(native), SystemCertificates::Get().file.c_str());
    X509_STORE_load_path(SSL_CTX_get_cert_store(native), SystemCertificates::Get().directory.c_str());
    ERR_clear_error();
  }
  if (!credentials.client_certificate.empty()) {
    context.use_certificate_chain(boost::asio::buffer(credentials.client_certificate));
    context.use_private_key(boost::asio::buffer(credentials.client_key), boost::asio::ssl::context::pem);
  }
}

}  // namespace downpour::kube
