#ifndef DOWNPOUR_TRAINER_CHECKPOINT_TESTING_S3_SERVER_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_TESTING_S3_SERVER_H_

#include <sys/types.h>

#include <filesystem>
#include <string>

namespace downpour::checkpoint {

// A whole S3 server, versitygw (e2e/cluster/build.sh versitygw), on a loopback socket and a folder of its own with the
// bucket "bucket"; it ends with the test. Its user is kKeyId with kSecret.
class S3Server {
 public:
  static constexpr char kKeyId[] = "the-key";
  static constexpr char kSecret[] = "a-secret-of-the-test";

  // Where the program is looked for: whoever does not find it there skips the test.
  static std::string Program();

  S3Server();
  ~S3Server();
  S3Server(const S3Server&) = delete;
  S3Server& operator=(const S3Server&) = delete;

  // From the next start on.
  void UseTls(const std::string& certificate_pem, const std::string& key_pem);
  std::string CertificateFile() const { return (folder_ / "certificate.pem").string(); }

  // It listens a moment later.
  void Start();
  void Kill();
  // Its connections stay, and nothing is answered until it goes on.
  void Stop();
  void Continue();

  int port() const { return port_; }
  std::string Endpoint() const;  // http(s)://127.0.0.1:PORT
  std::filesystem::path bucket() const { return folder_ / "data" / "bucket"; }
  std::string Log() const;

 private:
  const int port_;
  std::filesystem::path folder_;
  bool tls_ = false;
  pid_t pid_ = 0;
};

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_TESTING_S3_SERVER_H_
