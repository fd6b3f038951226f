#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_NPY_SOURCE_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_NPY_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/files/files.h"
#include "trainer/data/sample_source.h"

namespace downpour::data {

struct NpyOptions {
  std::string column = "values";  // the name of the column of a single .npy file; empty: the file's, without ".npy"
  // Deflated arrays of a .npz file are held in memory: together at most so many bytes.
  std::uint64_t most_inflated_bytes = std::uint64_t{1} << 30;
};

// Arrays of NumPy (formats 1.0, 2.0 and 3.0), of which the first dimension is the samples: one .npy file, or a column
// each file of a directory whose name ends in .npy (other files are left alone), named by its path below the directory
// without ".npy", or a column each array of a .npz file. What a file is, is told by its first bytes.
// Elements are bool, i1, u1, i2, u2, i4, u4, i8, u8, f2, f4 or f8 in either byte order, in C order; in Fortran order
// only where it is the same (one dimension). kUnimplemented: others, and what zip can and np.savez does not
// (encryption, methods but stored and deflated). kResourceExhausted: deflated arrays beyond the limit. Values stay in
// the files and are read by ranges, but for deflated ones, which are inflated once and checked with their CRC-32; those
// of stored ones are not checked. Must not outlive `files`.
absl::StatusOr<std::unique_ptr<SampleSource>> OpenNpy(const Files& files, const std::string& path,
                                                      const NpyOptions& options);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_NPY_SOURCE_H_
