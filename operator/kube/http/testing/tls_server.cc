#include "operator/kube/http/testing/tls_server.h"

#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace downpour::kube {
namespace {

std::string Text(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  return std::string(bytes, static_cast<std::size_t>(size));
}

}  // namespace

std::string Certificate::Pem() const {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), x509.get());
  return Text(bio.get());
}

std::string Certificate::KeyPem() const {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return Text(bio.get());
}

Certificate MakeCertificate(const std::string& name, const std::string& alternative, const Certificate* issuer) {
  Certificate made{Owned<EVP_PKEY>(EVP_EC_gen("P-256")), Owned<X509>(X509_new())};
  X509* const x509 = made.x509.get();
  X509_set_version(x509, 2);
  static long serial = 1;
  ASN1_INTEGER_set(X509_get_serialNumber(x509), serial++);
  X509_gmtime_adj(X509_getm_notBefore(x509), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
  X509_set_pubkey(x509, made.key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509* const signer = issuer == nullptr ? x509 : issuer->x509.get();
  X509_set_issuer_name(x509, X509_get_subject_name(signer));
  X509V3_CTX context;
  X509V3_set_ctx(&context, signer, x509, nullptr, nullptr, 0);
  const auto extend = [&](int id, const std::string& value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
    X509_add_ext(x509, extension, -1);
    X509_EXTENSION_free(extension);
  };
  extend(NID_basic_constraints, issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
  extend(NID_subject_key_identifier, "hash");
  // By which one of two authorities of the same name is found, as after a rotation.
  if (issuer != nullptr) extend(NID_authority_key_identifier, "keyid");
  if (!alternative.empty()) extend(NID_subject_alt_name, alternative);
  X509_sign(x509, issuer == nullptr ? made.key.get() : issuer->key.get(), EVP_sha256());
  return made;
}

int Listen(int* port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 8) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    std::abort();
  }
  *port = ntohs(address.sin_port);
  return listener;
}

TlsServer::TlsServer(const Certificate& certificate, const Certificate* client_authority, int max_version)
    : context_(SSL_CTX_new(TLS_server_method())) {
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to connections that the client has closed
  Show(certificate);
  if (max_version != 0) {
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_max_proto_version(context_.get(), max_version);
  }
  if (client_authority != nullptr) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), client_authority->x509.get());
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  int (*const hear)(SSL*, int*, void*) = [](SSL* ssl, int*, void* self) {
    const char* const name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    const std::lock_guard lock(static_cast<TlsServer*>(self)->mutex_);
    static_cast<TlsServer*>(self)->sni_ = name == nullptr ? "" : name;
    return SSL_TLSEXT_ERR_OK;
  };
  SSL_CTX_callback_ctrl(context_.get(), SSL_CTRL_SET_TLSEXT_SERVERNAME_CB, reinterpret_cast<void (*)()>(hear));
  SSL_CTX_set_tlsext_servername_arg(context_.get(), this);
  int port = 0;
  listener_ = Listen(&port);
  url_ = absl::StrCat("https://127.0.0.1:", port);
  thread_ = std::thread([this] { Run(); });
}

TlsServer::~TlsServer() {
  shutdown(listener_, SHUT_RDWR);
  thread_.join();
  close(listener_);
}

void TlsServer::Show(const Certificate& certificate) {
  const std::lock_guard lock(mutex_);
  SSL_CTX_use_certificate(context_.get(), certificate.x509.get());
  SSL_CTX_use_PrivateKey(context_.get(), certificate.key.get());
}

std::string TlsServer::sni() {
  const std::lock_guard lock(mutex_);
  return sni_;
}

Owned<SSL> TlsServer::Accept() {
  const std::lock_guard lock(mutex_);
  return Owned<SSL>(SSL_new(context_.get()));
}

void TlsServer::Run() {
  for (;;) {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return;
    const Owned<SSL> ssl = Accept();
    SSL_set_fd(ssl.get(), connection);
    char bytes[4096];
    if (SSL_accept(ssl.get()) == 1 && SSL_read(ssl.get(), bytes, sizeof(bytes)) > 0) {
      char name[100] = "nobody";
      if (X509* const peer = SSL_get1_peer_certificate(ssl.get())) {
        X509_NAME_get_text_by_NID(X509_get_subject_name(peer), NID_commonName, name, sizeof(name));
        X509_free(peer);
      }
      const std::string body = name;
      const std::string response =
          absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body);
      SSL_write(ssl.get(), response.data(), static_cast<int>(response.size()));
      SSL_shutdown(ssl.get());
    }
    close(connection);
  }
}

}  // namespace downpour::kube
