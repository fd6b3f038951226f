#ifndef DOWNPOUR_OPERATOR_API_TEXT_CHECKS_H_
#define DOWNPOUR_OPERATOR_API_TEXT_CHECKS_H_

#include <string_view>

// What a text of a manifest may be. Each returns what is asked for ("must ..."), or nothing if the text is right.
namespace downpour::api::schema {

std::string_view AnyText(std::string_view text);
std::string_view IsShortText(std::string_view text);  // at most 253 bytes
std::string_view IsApiVersion(std::string_view text);
std::string_view IsKind(std::string_view text);
std::string_view IsJobName(std::string_view text);        // RFC 1035 label of at most 40
std::string_view IsGenerateName(std::string_view text);   // five characters are added to it
std::string_view IsNamespace(std::string_view text);      // RFC 1123 label
std::string_view IsRuleName(std::string_view text);       // RFC 1035 label
std::string_view IsQualifiedName(std::string_view text);  // [prefix/]name, as keys of labels
std::string_view IsLabelValue(std::string_view text);
std::string_view IsReason(std::string_view text);            // as OOMKilled
std::string_view IsManagedBy(std::string_view text);         // prefix/path
std::string_view IsParameterPattern(std::string_view text);  // as conv1.*
std::string_view IsPluginName(std::string_view text);        // of what a plug-in holds
std::string_view IsPath(std::string_view text);
std::string_view IsPathOrEmpty(std::string_view text);
std::string_view IsDirectory(std::string_view text);  // a path, and no URI
std::string_view IsFile(std::string_view text);       // likewise
std::string_view IsLine(std::string_view text);       // what people call something: at most 250 bytes
std::string_view IsLineOrEmpty(std::string_view text);
std::string_view IsColumnName(std::string_view text);      // at most 128 characters
std::string_view IsOneCharacter(std::string_view text);    // of ASCII, as ;
std::string_view IsHttpUriOrEmpty(std::string_view text);  // http(s)://HOST[:PORT][/PREFIX]
std::string_view IsCheckpointUri(std::string_view text);   // a path, or s3://BUCKET/PREFIX
std::string_view IsMemory(std::string_view text);          // as 512Mi

}  // namespace downpour::api::schema

#endif  // DOWNPOUR_OPERATOR_API_TEXT_CHECKS_H_
