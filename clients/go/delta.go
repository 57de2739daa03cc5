package gamecore

import (
	"encoding/binary"
	"math/bits"
)

// Delta encoding: what changed between two bodies. docs/gamecore-tcp.md describes the format. Servers decode it: this file
// has the encoder alone, and gives the bytes of native/gamecore/include/penstock/gamecore/delta.hpp.

const (
	// So many bytes in a row are equal where the base is read on at the same distance. Shorter runs cost more than they save.
	run = 4
	// Where something was inserted or removed: so many bytes are equal there, so far from the bytes before.
	shiftedRun, mostShift = 8, 24
	// After so many bytes without a run, a shift is looked for. The distance doubles, so that strange bytes take no long
	// search.
	reach = 32
)

// encode returns the delta of next against base. False: it would not be smaller than next.
func encode(base, next []byte) ([]byte, bool) {
	made := binary.AppendUvarint(nil, uint64(len(next)))
	for at, place := 0, 0; at < len(next); {
		same := equalBytes(base[place:], next[at:])
		made = binary.AppendUvarint(made, uint64(same))
		at += same
		place += same
		if at == len(next) {
			break
		}
		found := changeAt(base, place, next, at)
		if found.place == least(place+found.put, len(base)) {
			made = binary.AppendUvarint(made, 2*uint64(found.put))
		} else {
			made = binary.AppendUvarint(made, 2*uint64(found.put)+1)
			made = binary.AppendUvarint(made, uint64(found.place))
		}
		if len(made)+found.put >= len(next) {
			return nil, false
		}
		made = append(made, next[at:at+found.put]...)
		at += found.put
		place = found.place
	}
	return made, len(made) < len(next)
}

// equalBytes counts how many bytes are equal from the start.
func equalBytes(a, b []byte) int {
	most := least(len(a), len(b))
	count := 0
	for ; most-count >= 8; count += 8 {
		differing := binary.LittleEndian.Uint64(a[count:]) ^ binary.LittleEndian.Uint64(b[count:])
		if differing != 0 {
			return count + bits.TrailingZeros64(differing)/8
		}
	}
	for count < most && a[count] == b[count] {
		count++
	}
	return count
}

// change is bytes that are put, and the place in the base behind them.
type change struct {
	put, place int
}

// changeAt returns the change that begins at `at`, where the two differ.
func changeAt(base []byte, place int, next []byte, at int) change {
	left := len(next) - at
	for put, stride := 0, reach; put < left; stride *= 2 {
		until := put + least(stride, left-put)
		begin := until - least(reach, until-put)
		for ; put < until; put++ {
			if left-put >= run && len(base)-place-put >= run &&
				binary.LittleEndian.Uint32(base[place+put:]) == binary.LittleEndian.Uint32(next[at+put:]) {
				return change{put, place + put}
			}
		}
		if found, ok := shifted(base, place, next, at, begin, until); ok {
			return found
		}
	}
	return change{left, least(place+left, len(base))}
}

// shifted looks for a put of `first` to `last` bytes after which next is base again, near place and with a shift.
func shifted(base []byte, place int, next []byte, at, first, last int) (change, bool) {
	for put := first; put < last && at+put+shiftedRun <= len(next); put++ {
		wanted := binary.LittleEndian.Uint64(next[at+put:])
		for shift := 1; shift <= mostShift; shift++ {
			for _, from := range [...]int{place + put + shift, place + put - shift} {
				if from >= 0 && len(base)-from >= shiftedRun && binary.LittleEndian.Uint64(base[from:]) == wanted {
					return change{put, from}, true
				}
			}
		}
	}
	return change{}, false
}

func least(a, b int) int {
	if a < b {
		return a
	}
	return b
}
