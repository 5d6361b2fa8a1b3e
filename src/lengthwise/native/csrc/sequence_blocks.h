// Cutting the sequences of a batch into blocks of queries and keys. Part of driver.cpp.
#pragma once

#include <unordered_map>
#include <vector>

#include "plan.h"

namespace {

// The memory behind a SequenceBlocks.
struct SequenceStorage {
  std::vector<Block> q, k;
  std::vector<int32_t> document;
};

// Numbers the documents in the order in which they first appear.
void number_documents(const i64* ids, i64 count, std::vector<int32_t>& document) {
  std::unordered_map<i64, int32_t> numbers;
  document.resize((size_t)count);
  for (i64 n = 0; n < count; n++) {
    if (n && ids[n] == ids[n - 1])
      document[(size_t)n] = document[(size_t)n - 1];
    else
      document[(size_t)n] = numbers.emplace(ids[n], (int32_t)numbers.size()).first->second;
  }
}

// Cuts tokens into blocks of at most `max_size`. With `split_documents`, no block holds tokens of two documents.
void cut_into_blocks(i64 count, i64 max_size, const i64* position, i64 first_position, const int32_t* document,
                     bool split_documents, std::vector<Block>& blocks) {
  for (i64 start = 0; start < count;) {
    Block block = {start, 0, position ? position[start] : first_position + start, 1, 0, 0};
    if (document) block.document_min = block.document_max = document[start];
    for (i64 t = start; t < count && block.size < max_size; t++, block.size++) {
      if (document) {
        if (split_documents && document[t] != document[start]) break;
        block.document_min = document[t] < block.document_min ? document[t] : block.document_min;
        block.document_max = document[t] > block.document_max ? document[t] : block.document_max;
      }
      if (position && position[t] != block.position + (t - start)) block.consecutive = 0;
    }
    blocks.push_back(block);
    start += block.size;
  }
}

SequenceBlocks cut_sequence(const Call& call, i64 b, SequenceStorage& storage) {
  const int32_t* document = nullptr;
  bool split_documents = false;
  if (call.documents) {
    number_documents(call.documents + start_of_sequence(call.documents_batch, b, call.keys), call.keys, storage.document);
    document = storage.document.data();
    i64 changes = 1;
    for (i64 n = 1; n < call.keys; n++) changes += document[n] != document[n - 1];
    // If documents change more often, blocks of one document would be too small to be worth it.
    split_documents = changes * 16 <= call.keys || changes <= 2;
  }
  const i64 offset = call.keys - call.queries;
  const i64* position_q = call.position_q ? call.position_q + start_of_sequence(call.position_q_batch, b, call.queries) : nullptr;
  const i64* position_k = call.position_k ? call.position_k + start_of_sequence(call.position_k_batch, b, call.keys) : nullptr;
  const int32_t* document_q = document ? document + offset : nullptr;
  cut_into_blocks(call.queries, BLOCK_Q, position_q, offset, document_q, split_documents, storage.q);
  cut_into_blocks(call.keys, BLOCK_K, position_k, 0, document, split_documents, storage.k);
  i64 panel_tokens = 0;
  for (const Block& k : storage.k) panel_tokens += round_up(k.size, 64);  // the widest panel of any target has 64 keys
  return {storage.q.data(), storage.k.data(), (i64)storage.q.size(), (i64)storage.k.size(), panel_tokens, document};
}

}  // namespace
