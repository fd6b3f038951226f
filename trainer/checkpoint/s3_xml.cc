#include "trainer/checkpoint/s3_xml.h"

#include <pugixml.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace downpour::checkpoint {
namespace {

// The root of `document` if the body is XML with this root; else an empty node.
pugi::xml_node Load(const std::string& body, const char* root, pugi::xml_document& document) {
  if (!document.load_buffer(body.data(), body.size())) return {};
  const pugi::xml_node node = document.document_element();
  return std::string_view(node.name()) == root ? node : pugi::xml_node();
}

absl::Status Unexpected(const char* expected) {
  return absl::InternalError(absl::StrCat("the server's answer is not the XML that S3 has here, expected ", expected));
}

class StringWriter : public pugi::xml_writer {
 public:
  void write(const void* data, std::size_t size) override { text.append(static_cast<const char*>(data), size); }
  std::string text;
};

}  // namespace

std::optional<S3Error> ParseS3Error(const std::string& body) {
  pugi::xml_document document;
  const pugi::xml_node root = Load(body, "Error", document);
  if (!root) return std::nullopt;
  return S3Error{root.child_value("Code"), root.child_value("Message")};
}

absl::StatusOr<S3ObjectPage> ParseS3ObjectPage(const std::string& body) {
  pugi::xml_document document;
  const pugi::xml_node root = Load(body, "ListBucketResult", document);
  if (!root) return Unexpected("ListBucketResult");
  S3ObjectPage page;
  for (const pugi::xml_node node : root.children("Contents")) {
    S3ObjectPage::Object object{node.child_value("Key")};
    if (object.key.empty() || !absl::SimpleAtoi(node.child_value("Size"), &object.bytes)) {
      return Unexpected("Contents with Key and Size");
    }
    page.objects.push_back(std::move(object));
  }
  if (root.child("IsTruncated").text().as_bool()) {
    page.next_token = root.child_value("NextContinuationToken");
    if (page.next_token.empty()) return Unexpected("NextContinuationToken of a page that is not the last");
  }
  return page;
}

absl::StatusOr<S3UploadPage> ParseS3UploadPage(const std::string& body) {
  pugi::xml_document document;
  const pugi::xml_node root = Load(body, "ListMultipartUploadsResult", document);
  if (!root) return Unexpected("ListMultipartUploadsResult");
  S3UploadPage page;
  for (const pugi::xml_node node : root.children("Upload")) {
    S3UploadPage::Upload upload{node.child_value("Key"), node.child_value("UploadId")};
    if (upload.key.empty() || upload.upload_id.empty()) return Unexpected("Upload with Key and UploadId");
    page.uploads.push_back(std::move(upload));
  }
  if (root.child("IsTruncated").text().as_bool()) {
    page.next_key_marker = root.child_value("NextKeyMarker");
    page.next_upload_id_marker = root.child_value("NextUploadIdMarker");
    if (page.next_key_marker.empty()) return Unexpected("NextKeyMarker of a page that is not the last");
  }
  return page;
}

absl::StatusOr<std::string> ParseS3UploadId(const std::string& body) {
  pugi::xml_document document;
  std::string upload_id = Load(body, "InitiateMultipartUploadResult", document).child_value("UploadId");
  if (upload_id.empty()) return Unexpected("InitiateMultipartUploadResult with UploadId");
  return upload_id;
}

std::string S3CompleteUploadBody(const std::vector<std::string>& etags) {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("CompleteMultipartUpload");
  root.append_attribute("xmlns") = "http://s3.amazonaws.com/doc/2006-03-01/";
  unsigned number = 0;
  for (const std::string& etag : etags) {
    pugi::xml_node part = root.append_child("Part");
    part.append_child("PartNumber").text() = ++number;
    part.append_child("ETag").text() = etag.c_str();
  }
  StringWriter writer;
  document.save(writer, "", pugi::format_raw);
  return writer.text;
}

}  // namespace downpour::checkpoint
