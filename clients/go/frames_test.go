package gamecore

import (
	"encoding/hex"
	"strings"
	"testing"
)

// The bytes are those of docs/gamecore-tcp.md, written out.

func wantBytes(t *testing.T, found []byte, wanted ...string) {
	t.Helper()
	if got := hex.EncodeToString(found); got != strings.Join(wanted, "") {
		t.Errorf("%s, not %s", got, strings.Join(wanted, ""))
	}
}

func TestTheGreetingHoldsKeyAndToken(t *testing.T) {
	wantBytes(t, greeting("ab", "c"), "ff47414d434f5245", "0002", "0002", "00000001", "6162", "63")
}

func TestARequestIsAHeadTheNameAndTheBody(t *testing.T) {
	head := requestHead{number: 258, base: 3, kind: Tick, encoding: deltaFrame}
	made := appendRequest(nil, head, "me", []byte("body!"))
	wantBytes(t, made, "0000000000000102", "0000000000000003", "0000000000000005", "00000002", "02", "02", "0000",
		"6d65", "626f647921")
}

func TestAWelcomeAndAReplyAreRead(t *testing.T) {
	bytes, _ := hex.DecodeString("ff47414d434f5245" + "0002" + "0191" + "00000005")
	if found := readWelcome(bytes); found != (welcome{true, 401, 5}) {
		t.Error(found)
	}
	bytes[9] = 3
	if readWelcome(bytes).isValid {
		t.Error("version 3 is none of ours")
	}
	bytes, _ = hex.DecodeString("0000000000000102" + "0000000000000007" + "01ad" + "0001" + "00000000")
	if found := readReply(bytes); found != (replyHead{258, 7, 429}) {
		t.Error(found)
	}
}
