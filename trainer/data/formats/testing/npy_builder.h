#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_TESTING_NPY_BUILDER_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_TESTING_NPY_BUILDER_H_

#include <gtest/gtest.h>
#include <zlib.h>  // with ZLIB_CONST: input pointers are const

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/data/encoding.h"

// Arrays of NumPy and archives of them, byte by byte.
namespace downpour::data {

// With the text of the header as it is.
inline std::string NpyArray(const std::string& header, const std::string& values, int version = 1) {
  Encoder encoder;
  for (const char letter : std::string("\x93NUMPY")) encoder.Put<char>(letter);
  encoder.Put<std::uint8_t>(static_cast<std::uint8_t>(version));
  encoder.Put<std::uint8_t>(0);
  if (version == 1) {
    encoder.Put<std::uint16_t>(static_cast<std::uint16_t>(header.size()));
  } else {
    encoder.Put<std::uint32_t>(static_cast<std::uint32_t>(header.size()));
  }
  return encoder.bytes() + header + values;
}

// As NumPy writes it.
inline std::string NpyArray(const std::string& descr, const std::string& shape, const std::string& values,
                            int version = 1) {
  std::string header = absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", shape, ", }");
  header.resize((header.size() + 64) / 64 * 64, ' ');
  header.back() = '\n';
  return NpyArray(header, values, version);
}

template <typename Number>
std::string Bytes(const std::vector<Number>& numbers, bool big_endian = false) {
  std::string bytes;
  for (const Number number : numbers) {
    char of_number[sizeof(Number)];
    std::memcpy(of_number, &number, sizeof(Number));
    if (big_endian) std::reverse(of_number, of_number + sizeof(Number));
    bytes.append(of_number, sizeof(Number));
  }
  return bytes;
}

struct ZipFile {
  std::string name;
  std::string content;
  bool deflated = false;
};

inline std::string Deflate(const std::string& plain) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, plain.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<const Bytef*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// `wide`: all that can be is in zip64 fields, as np.savez writes local headers.
inline std::string Zip(const std::vector<ZipFile>& entries, bool wide = false, const std::string& comment = "") {
  std::string archive;
  std::string directory;
  for (const ZipFile& entry : entries) {
    const std::string packed = entry.deflated ? Deflate(entry.content) : entry.content;
    const auto checksum = static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(entry.content.data()), static_cast<uInt>(entry.content.size())));
    const std::uint64_t begin = archive.size();
    const auto narrow = [wide](std::uint64_t number) { return wide ? 0xffffffff : static_cast<std::uint32_t>(number); };
    for (const bool local : {true, false}) {
      Encoder extra;
      if (wide) {
        extra.Put<std::uint16_t>(1);
        extra.Put<std::uint16_t>(local ? 16 : 24);
        extra.Put<std::uint64_t>(entry.content.size());
        extra.Put<std::uint64_t>(packed.size());
        if (!local) extra.Put<std::uint64_t>(begin);
      }
      Encoder header;
      header.Put<std::uint32_t>(local ? 0x04034b50 : 0x02014b50);
      if (!local) header.Put<std::uint16_t>(45);
      header.Put<std::uint16_t>(45);
      header.Put<std::uint16_t>(0);
      header.Put<std::uint16_t>(entry.deflated ? 8 : 0);
      header.Put<std::uint32_t>(0);
      header.Put<std::uint32_t>(checksum);
      header.Put<std::uint32_t>(narrow(packed.size()));
      header.Put<std::uint32_t>(narrow(entry.content.size()));
      header.Put<std::uint16_t>(static_cast<std::uint16_t>(entry.name.size()));
      header.Put<std::uint16_t>(static_cast<std::uint16_t>(extra.bytes().size()));
      if (!local) {
        header.Put<std::uint64_t>(0);  // comment, volume, two kinds of attributes
        header.Put<std::uint16_t>(0);
        header.Put<std::uint32_t>(narrow(begin));
      }
      absl::StrAppend(local ? &archive : &directory, header.bytes(), entry.name, extra.bytes(), local ? packed : "");
    }
  }
  Encoder end;
  if (wide) {
    end.Put<std::uint32_t>(0x06064b50);
    end.Put<std::uint64_t>(44);
    end.Put<std::uint32_t>(45);
    end.Put<std::uint64_t>(0);
    end.Put<std::uint64_t>(entries.size());
    end.Put<std::uint64_t>(entries.size());
    end.Put<std::uint64_t>(directory.size());
    end.Put<std::uint64_t>(archive.size());
    end.Put<std::uint32_t>(0x07064b50);
    end.Put<std::uint32_t>(0);
    end.Put<std::uint64_t>(archive.size() + directory.size());
    end.Put<std::uint32_t>(1);
  }
  end.Put<std::uint32_t>(0x06054b50);
  end.Put<std::uint32_t>(0);
  end.Put<std::uint16_t>(static_cast<std::uint16_t>(wide ? 0xffff : entries.size()));
  end.Put<std::uint16_t>(static_cast<std::uint16_t>(wide ? 0xffff : entries.size()));
  end.Put<std::uint32_t>(wide ? 0xffffffff : static_cast<std::uint32_t>(directory.size()));
  end.Put<std::uint32_t>(wide ? 0xffffffff : static_cast<std::uint32_t>(archive.size()));
  end.Put<std::uint16_t>(static_cast<std::uint16_t>(comment.size()));
  return archive + directory + end.bytes() + comment;
}

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_TESTING_NPY_BUILDER_H_
