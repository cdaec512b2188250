// Sizes of what the products of quantised panels read.
#pragma once
#include "kernel_table.h"

namespace pellucid {
namespace {

template <Format F>
constexpr int kBlockBytes = F == Format::kUint4 ? kUint4BlockBytes : kUint8BlockBytes;

constexpr int kGroupBlockBytes = kRowGroup * kBlock;  // a block of a group of rows

}  // namespace
}  // namespace pellucid
