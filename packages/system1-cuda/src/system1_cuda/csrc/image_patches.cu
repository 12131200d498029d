// Antialiased resize of a picture in fixed point, written as the patches of a vision tower.
//
// Two passes, as the reference: across each line, rounded to bytes, then down. Taps that a table
// holds beyond the end of a line have weight zero, so reading the last value for them is enough.

#include "launch.h"

namespace system1 {
namespace {

constexpr int kThreads = 256;
constexpr int kChannels = 3;
// Pixels of four bytes that a thread of the second pass takes together.
constexpr int kPixels = 4;

struct Sums {
  int values[kChannels];

  __device__ explicit Sums(int bits) {
#pragma unroll
    for (int& value : values) value = 1 << (bits - 1);
  }

  __device__ void add(uchar4 pixel, int weight) {
    values[0] += weight * pixel.x;
    values[1] += weight * pixel.y;
    values[2] += weight * pixel.z;
  }

  __device__ unsigned char byte(int channel, int bits) const {
    return static_cast<unsigned char>(min(max(values[channel] >> bits, 0), 255));
  }
};

// A thread makes one pixel of a line.
__global__ void __launch_bounds__(kThreads) across(const ImagePatches args) {
  const int column = blockIdx.x * kThreads + threadIdx.x;
  const int64_t row = blockIdx.y;
  if (column >= args.columns) return;
  const uchar4* line = static_cast<const uchar4*>(args.pixels) + row * args.width;
  const int first = args.across.first[column];
  Sums sums(args.across.bits);
  for (int tap = 0; tap < args.across.taps; ++tap) {
    const int place = min(first + tap, args.width - 1);
    sums.add(line[place], args.across.weights[static_cast<int64_t>(tap) * args.columns + column]);
  }
  const int bits = args.across.bits;
  static_cast<uchar4*>(args.between)[row * args.columns + column] =
      make_uchar4(sums.byte(0, bits), sums.byte(1, bits), sums.byte(2, bits), 0);
}

// A thread makes four neighbours of a line, which are of one patch.
__global__ void __launch_bounds__(kThreads) down(const ImagePatches args) {
  const int column = (blockIdx.x * kThreads + threadIdx.x) * kPixels;
  const int row = blockIdx.y;
  if (column >= args.columns) return;
  const uint4* source = static_cast<const uint4*>(args.between);
  const int64_t stride = args.columns / kPixels;
  const int first = args.down.first[row];
  const int bits = args.down.bits;
  Sums sums[kPixels] = {Sums(bits), Sums(bits), Sums(bits), Sums(bits)};
  for (int tap = 0; tap < args.down.taps; ++tap) {
    const int64_t place = min(first + tap, args.height - 1);
    const int weight = args.down.weights[static_cast<int64_t>(tap) * args.rows + row];
    const uint4 piece = source[place * stride + column / kPixels];
    const unsigned words[kPixels] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      const unsigned word = words[i];
      sums[i].add(make_uchar4(word & 255, word >> 8 & 255, word >> 16 & 255, 0), weight);
    }
  }
  const int side = args.patch_size;
  const int block = side * args.merge_size;
  const int64_t blocks = static_cast<int64_t>(row / block) * (args.columns / block) + column / block;
  const int inside = row % block / side * args.merge_size + column % block / side;
  const int64_t patch = blocks * args.merge_size * args.merge_size + inside;
  const int area = side * side;
  unsigned char* target = args.patches + patch * kChannels * area + row % side * side + column % side;
#pragma unroll
  for (int channel = 0; channel < kChannels; ++channel) {
    *reinterpret_cast<uchar4*>(target + channel * area) =
        make_uchar4(sums[0].byte(channel, bits), sums[1].byte(channel, bits),
                    sums[2].byte(channel, bits), sums[3].byte(channel, bits));
  }
}

int blocks_of(int count) { return (count + kThreads - 1) / kThreads; }

}  // namespace

cudaError_t launch_image_patches(const ImagePatches& args, cudaStream_t stream) {
  if (args.between != args.pixels) {
    const dim3 grid(blocks_of(args.columns), args.height);
    across<<<grid, kThreads, 0, stream>>>(args);
  }
  const dim3 grid(blocks_of(args.columns / kPixels), args.rows);
  down<<<grid, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace system1
