package gamecore

import "encoding/binary"

// The frames of version 2 of Gamecore over TCP as bytes; see docs/gamecore-tcp.md. This file opens no socket.

// Kind is the kind of a call.
type Kind uint8

// The calls of an episode, in their order.
const (
	Start Kind = iota + 1
	Tick
	Stop
)

func (k Kind) String() string { return [...]string{"", "start", "tick", "stop"}[k] }

// encoding says how a frame holds the body of a request. Only ticks have another one than plain.
type encoding uint8

const (
	plain encoding = iota
	keyFrame
	deltaFrame
)

const (
	magic       = "\xffGAMCORE"
	version     = 2
	welcomeSize = 16
	replySize   = 24
)

// greeting is what a client says first.
func greeting(key, token string) []byte {
	made := append([]byte{}, magic...)
	made = binary.BigEndian.AppendUint16(made, version)
	made = binary.BigEndian.AppendUint16(made, uint16(len(key)))
	made = binary.BigEndian.AppendUint32(made, uint32(len(token)))
	return append(append(made, key...), token...)
}

type welcome struct {
	isValid  bool
	status   int
	textSize uint32
}

func readWelcome(from []byte) welcome {
	return welcome{
		isValid:  string(from[:len(magic)]) == magic && binary.BigEndian.Uint16(from[8:]) == version,
		status:   int(binary.BigEndian.Uint16(from[10:])),
		textSize: binary.BigEndian.Uint32(from[12:]),
	}
}

type requestHead struct {
	number   uint64
	base     uint64 // of a delta: id of the request whose body it refers to
	kind     Kind
	encoding encoding
}

func appendRequest(to []byte, head requestHead, session string, body []byte) []byte {
	to = binary.BigEndian.AppendUint64(to, head.number)
	to = binary.BigEndian.AppendUint64(to, head.base)
	to = binary.BigEndian.AppendUint64(to, uint64(len(body)))
	to = binary.BigEndian.AppendUint32(to, uint32(len(session)))
	to = append(to, byte(head.kind), byte(head.encoding), 0, 0)
	return append(append(to, session...), body...)
}

type replyHead struct {
	number, bodySize uint64
	status           int
}

func readReply(from []byte) replyHead {
	return replyHead{
		number:   binary.BigEndian.Uint64(from),
		bodySize: binary.BigEndian.Uint64(from[8:]),
		status:   int(binary.BigEndian.Uint16(from[16:])),
	}
}
