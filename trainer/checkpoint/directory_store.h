#ifndef DOWNPOUR_TRAINER_CHECKPOINT_DIRECTORY_STORE_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_DIRECTORY_STORE_H_

#include <memory>
#include <string>

#include "trainer/checkpoint/file_system.h"
#include "trainer/checkpoint/store.h"

namespace downpour::checkpoint {

// A store in the directory `path`, which is made with the first file. A file is written as .NAME.tmp- and 16 characters
// beside its name, synced, and renamed where nothing is; then the directories up to the store are. So writers on
// several machines may share it: of two that write one name exactly one wins. `file_system` must outlive the store.
std::unique_ptr<Store> MakeDirectoryStore(FileSystem& file_system, std::string path);

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_DIRECTORY_STORE_H_
